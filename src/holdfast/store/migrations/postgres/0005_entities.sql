ALTER TABLE entities ADD COLUMN parent text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE entities ADD COLUMN groups bytea NOT NULL DEFAULT '\x90';
ALTER TABLE entities ADD COLUMN facts bytea NOT NULL DEFAULT '\x80';
ALTER TABLE entities ADD COLUMN source text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE entities ADD COLUMN external text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE entities ADD COLUMN version bigint NOT NULL DEFAULT 1;
ALTER TABLE entities ADD COLUMN is_stale bigint NOT NULL DEFAULT 0;
CREATE INDEX entities_from ON entities (tenant, source, external) WHERE source <> '';

-- Equalities that hold for an entity, so that selectors need not look at all of them. Those of entities that were
-- there before are written with this migration, see `filling.py`.
CREATE TABLE entity_terms (
    tenant text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    value  text COLLATE "C" NOT NULL,
    id     text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, key, value, id)
);
CREATE INDEX entity_terms_of ON entity_terms (tenant, id);

-- One row per execution and entity. With a fence it holds the entity, without one it waits. Once it is over it is a
-- trace: who worked upon what, and under which fence.
CREATE TABLE entity_claims (
    tenant      text COLLATE "C" NOT NULL,
    entity      text COLLATE "C" NOT NULL,
    ticket      bigint NOT NULL,
    execution   bytea NOT NULL,
    mode        bigint NOT NULL,
    priority    bigint NOT NULL,
    fence       bigint NOT NULL,
    since       bigint NOT NULL,
    is_watching bigint NOT NULL,
    is_over     bigint NOT NULL,
    PRIMARY KEY (execution, entity, ticket)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
CREATE INDEX entity_claims_live ON entity_claims (tenant, entity) WHERE is_over = 0;
CREATE INDEX entity_claims_past ON entity_claims (tenant, entity, fence) WHERE is_over = 1;
CREATE INDEX entity_claims_watched ON entity_claims (tenant, entity) WHERE is_watching = 1;

CREATE TABLE entity_flags (
    tenant    text COLLATE "C" NOT NULL,
    entity    text COLLATE "C" NOT NULL,
    execution bytea NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    reason    text COLLATE "C" NOT NULL,
    at        bigint NOT NULL,
    PRIMARY KEY (execution, entity, kind)
);
CREATE INDEX entity_flags_at ON entity_flags (tenant, entity);

-- What jobs asked of the inventory, in their order; kept aside until their execution has completed.
CREATE TABLE entity_changes (
    execution bytea NOT NULL,
    n         bigint NOT NULL,
    job       bigint NOT NULL,
    change    bytea NOT NULL,
    PRIMARY KEY (execution, n)
);

-- A number that is given and not used does no harm: they only have to grow.
CREATE SEQUENCE tickets;

-- The execution that one does again, and the way back from there.
ALTER TABLE executions ADD COLUMN retry_of bytea NOT NULL DEFAULT '';
CREATE INDEX executions_retries ON executions (tenant, retry_of) WHERE length(retry_of) > 0;
