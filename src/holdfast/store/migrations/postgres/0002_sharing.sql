ALTER TABLE executions ADD COLUMN entity text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE executions ADD COLUMN retention text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE executions ADD COLUMN retention_hash text COLLATE "C" NOT NULL DEFAULT '';
