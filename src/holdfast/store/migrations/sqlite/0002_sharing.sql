ALTER TABLE executions ADD COLUMN entity TEXT NOT NULL DEFAULT '';
-- Of the rule by which it is kept once it has ended; both are empty until a workflow says something about it.
ALTER TABLE executions ADD COLUMN retention TEXT NOT NULL DEFAULT '';
ALTER TABLE executions ADD COLUMN retention_hash TEXT NOT NULL DEFAULT '';

CREATE TABLE entities (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    type       TEXT NOT NULL,
    name       TEXT NOT NULL,
    labels     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID, STRICT;

-- Values are kept whole: they outlive the execution that set them.
CREATE TABLE sensors (
    tenant  TEXT NOT NULL,
    entity  TEXT NOT NULL,
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    value   BLOB NOT NULL,
    version INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    author  TEXT NOT NULL,
    PRIMARY KEY (tenant, entity, kind, name)
) STRICT;

CREATE TABLE sensor_waits (
    tenant    TEXT NOT NULL,
    entity    TEXT NOT NULL,
    kind      TEXT NOT NULL,
    name      TEXT NOT NULL,
    execution BLOB NOT NULL,
    lane      INTEGER NOT NULL,
    PRIMARY KEY (tenant, entity, kind, name, execution, lane)
) WITHOUT ROWID, STRICT;
CREATE INDEX sensor_waits_of ON sensor_waits (execution, lane);

-- Stays when nobody wants the lock any more: a fence must never be given twice.
CREATE TABLE locks (
    tenant   TEXT NOT NULL,
    entity   TEXT NOT NULL,
    name     TEXT NOT NULL,
    fence    INTEGER NOT NULL,
    next_seq INTEGER NOT NULL,
    PRIMARY KEY (tenant, entity, name)
) WITHOUT ROWID, STRICT;

-- One row per claim. With a fence it holds the lock, without one it waits.
CREATE TABLE lock_queue (
    tenant    TEXT NOT NULL,
    entity    TEXT NOT NULL,
    name      TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    execution BLOB NOT NULL,
    lane      INTEGER NOT NULL,
    path      BLOB NOT NULL,
    since     INTEGER NOT NULL,
    fence     INTEGER NOT NULL,
    PRIMARY KEY (tenant, entity, name, seq)
) WITHOUT ROWID, STRICT;
CREATE INDEX lock_queue_of ON lock_queue (execution);
