-- What may be forgotten one day: ended, not unsafe and unseen (22), and not to go at once. In the order of
-- groups, and within one of ends: what a purge costs does not depend on how much is kept.
CREATE INDEX executions_kept ON executions
    (tenant, entity, (coalesce(nullif(retention_hash, ''), workflow)), ended_at, id)
    WHERE status >= 20 AND status <> 22 AND retention <> 'disabled';
CREATE INDEX executions_unkept ON executions (ended_at, id)
    WHERE status >= 20 AND status <> 22 AND retention = 'disabled';
-- Keys of starts outlive their execution by a day.
CREATE INDEX starts_by_age ON starts (at, tenant, key);
