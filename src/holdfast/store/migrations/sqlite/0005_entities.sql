ALTER TABLE entities ADD COLUMN parent TEXT NOT NULL DEFAULT '';
ALTER TABLE entities ADD COLUMN groups BLOB NOT NULL DEFAULT x'90';
ALTER TABLE entities ADD COLUMN facts BLOB NOT NULL DEFAULT x'80';
ALTER TABLE entities ADD COLUMN source TEXT NOT NULL DEFAULT '';
ALTER TABLE entities ADD COLUMN external TEXT NOT NULL DEFAULT '';
ALTER TABLE entities ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
ALTER TABLE entities ADD COLUMN is_stale INTEGER NOT NULL DEFAULT 0;
CREATE INDEX entities_from ON entities (tenant, source, external) WHERE source <> '';

-- Equalities that hold for an entity, so that selectors need not look at all of them. Those of entities that were
-- there before are written with this migration, see `filling.py`.
CREATE TABLE entity_terms (
    tenant TEXT NOT NULL,
    key    TEXT NOT NULL,
    value  TEXT NOT NULL,
    id     TEXT NOT NULL,
    PRIMARY KEY (tenant, key, value, id)
) WITHOUT ROWID, STRICT;
CREATE INDEX entity_terms_of ON entity_terms (tenant, id);

-- One row per execution and entity. With a fence it holds the entity, without one it waits. Once it is over it is a
-- trace: who worked upon what, and under which fence.
CREATE TABLE entity_claims (
    tenant      TEXT NOT NULL,
    entity      TEXT NOT NULL,
    ticket      INTEGER NOT NULL,
    execution   BLOB NOT NULL,
    mode        INTEGER NOT NULL,
    priority    INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    since       INTEGER NOT NULL,
    is_watching INTEGER NOT NULL,
    is_over     INTEGER NOT NULL,
    PRIMARY KEY (execution, entity, ticket)
) WITHOUT ROWID, STRICT;
CREATE INDEX entity_claims_live ON entity_claims (tenant, entity) WHERE is_over = 0;
CREATE INDEX entity_claims_past ON entity_claims (tenant, entity, fence) WHERE is_over = 1;
CREATE INDEX entity_claims_watched ON entity_claims (tenant, entity) WHERE is_watching = 1;

CREATE TABLE entity_flags (
    tenant    TEXT NOT NULL,
    entity    TEXT NOT NULL,
    execution BLOB NOT NULL,
    kind      TEXT NOT NULL,
    reason    TEXT NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (execution, entity, kind)
) WITHOUT ROWID, STRICT;
CREATE INDEX entity_flags_at ON entity_flags (tenant, entity);

-- What jobs asked of the inventory, in their order; kept aside until their execution has completed.
CREATE TABLE entity_changes (
    execution BLOB NOT NULL,
    n         INTEGER NOT NULL,
    job       INTEGER NOT NULL,
    change    BLOB NOT NULL,
    PRIMARY KEY (execution, n)
) WITHOUT ROWID, STRICT;

CREATE TABLE tickets (
    id   INTEGER PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT;
INSERT INTO tickets VALUES (1, 0);

-- The execution that one does again, and the way back from there.
ALTER TABLE executions ADD COLUMN retry_of BLOB NOT NULL DEFAULT x'';
CREATE INDEX executions_retries ON executions (tenant, retry_of) WHERE length(retry_of) > 0;
