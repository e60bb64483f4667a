-- Text compares byte by byte, as in SQLite: both stores list in the same order.
-- Bytes are kept as they come where they are written often; the server need not try to shrink them.

CREATE TABLE executions (
    id               bytea PRIMARY KEY,
    tenant           text COLLATE "C" NOT NULL,
    workflow         text COLLATE "C" NOT NULL,
    workflow_version bigint NOT NULL,
    definition       bytea NOT NULL,
    status           bigint NOT NULL,
    version          bigint NOT NULL,
    digest           bytea NOT NULL,
    snapshot         bigint NOT NULL,
    logs             bigint NOT NULL,
    run              bigint NOT NULL,
    created_at       bigint NOT NULL,
    updated_at       bigint NOT NULL,
    started_at       bigint NOT NULL,
    ended_at         bigint NOT NULL,
    jobs_done        bigint NOT NULL,
    jobs_total       bigint NOT NULL,
    summary          bytea NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE executions ALTER summary SET STORAGE EXTERNAL;
-- A step changes no indexed column, so its update stays on the page (HOT). Only a change of status does.
CREATE INDEX executions_of_tenant ON executions (tenant, id);
-- Statuses below 20 have not ended: this index holds only what is alive.
CREATE INDEX executions_open ON executions (tenant, status) WHERE status < 20;
-- People name an execution by the beginning of its id, which is the end of the stored key.
CREATE INDEX executions_by_prefix ON executions (tenant, substr(id, 7, 10));

CREATE TABLE history (
    execution bytea NOT NULL,
    seq       bigint NOT NULL,
    at        bigint NOT NULL,
    body      bytea NOT NULL,
    digest    bytea NOT NULL,
    PRIMARY KEY (execution, seq)
);

-- Rows live for milliseconds to minutes. Vacuum by count and without pauses, or the dead outnumber the living.
CREATE TABLE jobs (
    execution   bytea NOT NULL,
    job         bigint NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    block       text COLLATE "C" NOT NULL,
    since       bigint NOT NULL,
    attempt     bigint NOT NULL,
    incarnation text COLLATE "C" NOT NULL,
    timeout     bigint NOT NULL,
    PRIMARY KEY (execution, job)
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000
);
CREATE INDEX jobs_waiting ON jobs (since, execution, job) WHERE incarnation = '';

-- What running attempts last said of themselves; rare, so it does not widen `jobs`.
CREATE TABLE beats (
    execution bytea NOT NULL,
    job       bigint NOT NULL,
    attempt   bigint NOT NULL,
    details   bytea NOT NULL,
    PRIMARY KEY (execution, job)
);

CREATE TABLE agenda (
    execution bytea NOT NULL,
    item      text COLLATE "C" NOT NULL,
    due       bigint NOT NULL,
    request   bytea NOT NULL,
    PRIMARY KEY (execution, item)
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000
);
CREATE INDEX agenda_due ON agenda (due, execution, item);

CREATE TABLE logs (
    execution bytea NOT NULL,
    number    bigint NOT NULL,
    at        bigint NOT NULL,
    level     bigint NOT NULL,
    step      text COLLATE "C" NOT NULL,
    job       bigint NOT NULL,
    message   text COLLATE "C" NOT NULL,
    PRIMARY KEY (execution, number)
);

CREATE TABLE blobs (
    execution bytea NOT NULL,
    digest    bytea NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (execution, digest)
);

CREATE TABLE parts (
    execution bytea NOT NULL,
    part      text COLLATE "C" NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (execution, part)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE parts ALTER data SET STORAGE EXTERNAL;

CREATE TABLE definitions (digest bytea PRIMARY KEY, data bytea NOT NULL);

CREATE TABLE workflows (
    tenant       text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    version      bigint NOT NULL,
    definition   bytea NOT NULL,
    published_at bigint NOT NULL,
    published_by text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, name, version)
);

CREATE TABLE starts (
    tenant    text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    execution bytea NOT NULL,
    content   bytea NOT NULL,
    at        bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);

CREATE TABLE blocks (
    name          text COLLATE "C" NOT NULL,
    version       text COLLATE "C" NOT NULL,
    offer         bytea NOT NULL,
    registered_at bigint NOT NULL,
    PRIMARY KEY (name, version)
);

-- One row per worker, rewritten by every beat.
CREATE TABLE workers (
    name          text COLLATE "C" PRIMARY KEY,
    incarnation   text COLLATE "C" NOT NULL,
    engine        text COLLATE "C" NOT NULL,
    host          text COLLATE "C" NOT NULL,
    pid           bigint NOT NULL,
    slots         bigint NOT NULL,
    queues        text COLLATE "C" NOT NULL,
    blocks        text COLLATE "C" NOT NULL,
    registered_at bigint NOT NULL,
    seen_at       bigint NOT NULL,
    lease         bigint NOT NULL,
    state         text COLLATE "C" NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE engines (
    id         text COLLATE "C" PRIMARY KEY,
    name       text COLLATE "C" NOT NULL,
    started_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    address    text COLLATE "C" NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE tokens (
    id         text COLLATE "C" PRIMARY KEY,
    hash       bytea NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    role       text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    is_revoked bigint NOT NULL
);

CREATE TABLE meta (key text COLLATE "C" PRIMARY KEY, value bytea NOT NULL);
