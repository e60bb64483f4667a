ALTER TABLE executions ADD COLUMN entity text COLLATE "C" NOT NULL DEFAULT '';
-- Of the rule by which it is kept once it has ended; both are empty until a workflow says something about it.
ALTER TABLE executions ADD COLUMN retention text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE executions ADD COLUMN retention_hash text COLLATE "C" NOT NULL DEFAULT '';

CREATE TABLE entities (
    tenant     text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    type       text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    labels     bytea NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- Values are kept whole: they outlive the execution that set them.
CREATE TABLE sensors (
    tenant  text COLLATE "C" NOT NULL,
    entity  text COLLATE "C" NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    value   bytea NOT NULL,
    version bigint NOT NULL,
    at      bigint NOT NULL,
    author  text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, entity, kind, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE sensor_waits (
    tenant    text COLLATE "C" NOT NULL,
    entity    text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    execution bytea NOT NULL,
    lane      bigint NOT NULL,
    PRIMARY KEY (tenant, entity, kind, name, execution, lane)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX sensor_waits_of ON sensor_waits (execution, lane);

-- Stays when nobody wants the lock any more: a fence must never be given twice.
CREATE TABLE locks (
    tenant   text COLLATE "C" NOT NULL,
    entity   text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    fence    bigint NOT NULL,
    next_seq bigint NOT NULL,
    PRIMARY KEY (tenant, entity, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- One row per claim. With a fence it holds the lock, without one it waits. Rows live for moments.
CREATE TABLE lock_queue (
    tenant    text COLLATE "C" NOT NULL,
    entity    text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    seq       bigint NOT NULL,
    execution bytea NOT NULL,
    lane      bigint NOT NULL,
    path      bytea NOT NULL,
    since     bigint NOT NULL,
    fence     bigint NOT NULL,
    PRIMARY KEY (tenant, entity, name, seq)
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX lock_queue_of ON lock_queue (execution);
