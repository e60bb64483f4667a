-- Claimed jobs whose workers have to be told to stop.
ALTER TABLE jobs ADD COLUMN stopping bigint NOT NULL DEFAULT 0;
UPDATE jobs SET stopping = 1 WHERE incarnation <> '' AND execution IN (SELECT id FROM executions WHERE status IN (13, 14, 15));
CREATE INDEX jobs_stopping ON jobs (execution) WHERE stopping = 1;
