"""REST, server-sent events and a small page. `holdfast.api.server.Server` is the way in.

A request passes: `app` (find the route, check the caller, read, answer) → a handler in `workflows`, `executions`,
`system`, `working` or `page` → `engine.service`. What a route is, `routes` says; who may, `auth`; what passes as
input, `strict`; the document for others, `openapi`.
"""
