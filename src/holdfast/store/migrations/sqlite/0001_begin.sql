CREATE TABLE executions (
    id               BLOB PRIMARY KEY,
    tenant           TEXT NOT NULL,
    workflow         TEXT NOT NULL,
    workflow_version INTEGER NOT NULL,
    definition       BLOB NOT NULL,
    status           INTEGER NOT NULL,
    version          INTEGER NOT NULL,
    digest           BLOB NOT NULL,
    snapshot         INTEGER NOT NULL,
    logs             INTEGER NOT NULL,
    run              INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    started_at       INTEGER NOT NULL,
    ended_at         INTEGER NOT NULL,
    jobs_done        INTEGER NOT NULL,
    jobs_total       INTEGER NOT NULL,
    summary          BLOB NOT NULL
) WITHOUT ROWID, STRICT;
-- Statuses below 20 have not ended: this index holds only what is alive.
CREATE INDEX executions_open ON executions (tenant, status) WHERE status < 20;

CREATE TABLE history (
    execution BLOB NOT NULL,
    seq       INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    body      BLOB NOT NULL,
    digest    BLOB NOT NULL,
    PRIMARY KEY (execution, seq)
) WITHOUT ROWID, STRICT;

CREATE TABLE jobs (
    execution   BLOB NOT NULL,
    job         INTEGER NOT NULL,
    queue       TEXT NOT NULL,
    block       TEXT NOT NULL,
    since       INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    incarnation TEXT NOT NULL,
    timeout     INTEGER NOT NULL,
    PRIMARY KEY (execution, job)
) WITHOUT ROWID, STRICT;

-- What running attempts last said of themselves; rare, so it does not widen `jobs`.
CREATE TABLE beats (
    execution BLOB NOT NULL,
    job       INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    details   BLOB NOT NULL,
    PRIMARY KEY (execution, job)
) WITHOUT ROWID, STRICT;

CREATE TABLE agenda (
    execution BLOB NOT NULL,
    item      TEXT NOT NULL,
    due       INTEGER NOT NULL,
    request   BLOB NOT NULL,
    PRIMARY KEY (execution, item)
) WITHOUT ROWID, STRICT;
CREATE INDEX agenda_due ON agenda (due);

CREATE TABLE logs (
    execution BLOB NOT NULL,
    number    INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    level     INTEGER NOT NULL,
    step      TEXT NOT NULL,
    job       INTEGER NOT NULL,
    message   TEXT NOT NULL,
    PRIMARY KEY (execution, number)
) WITHOUT ROWID, STRICT;

CREATE TABLE blobs (
    execution BLOB NOT NULL,
    digest    BLOB NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (execution, digest)
) STRICT;

CREATE TABLE parts (
    execution BLOB NOT NULL,
    part      TEXT NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (execution, part)
) STRICT;

CREATE TABLE definitions (digest BLOB PRIMARY KEY, data BLOB NOT NULL) STRICT;

CREATE TABLE workflows (
    tenant       TEXT NOT NULL,
    name         TEXT NOT NULL,
    version      INTEGER NOT NULL,
    definition   BLOB NOT NULL,
    published_at INTEGER NOT NULL,
    published_by TEXT NOT NULL,
    PRIMARY KEY (tenant, name, version)
) WITHOUT ROWID, STRICT;

CREATE TABLE starts (
    tenant    TEXT NOT NULL,
    key       TEXT NOT NULL,
    execution BLOB NOT NULL,
    content   BLOB NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID, STRICT;

CREATE TABLE blocks (
    name          TEXT NOT NULL,
    version       TEXT NOT NULL,
    offer         BLOB NOT NULL,
    registered_at INTEGER NOT NULL,
    PRIMARY KEY (name, version)
) WITHOUT ROWID, STRICT;

CREATE TABLE workers (
    name          TEXT PRIMARY KEY,
    incarnation   TEXT NOT NULL,
    engine        TEXT NOT NULL,
    host          TEXT NOT NULL,
    pid           INTEGER NOT NULL,
    slots         INTEGER NOT NULL,
    queues        TEXT NOT NULL,
    blocks        TEXT NOT NULL,
    registered_at INTEGER NOT NULL,
    seen_at       INTEGER NOT NULL,
    lease         INTEGER NOT NULL,
    state         TEXT NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TABLE engines (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    address    TEXT NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TABLE tokens (
    id         TEXT PRIMARY KEY,
    hash       BLOB NOT NULL,
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    role       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    is_revoked INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID, STRICT;
