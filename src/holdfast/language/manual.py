"""What the reference page says of each step beyond its tables: when it may run twice, how it behaves, an example.

Every step type and every built-in block form has an entry; a test says so, and checks every example.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Entry:
    #: whether the step may be entered again after it failed or was cut off
    repeats: str
    #: the long form, or the step among others; a whole workflow
    example: str
    notes: tuple[str, ...] = ()


YES, NO, INSIDE, BLOCK = "yes", "no", "as its steps", "as its block"

MANUAL: dict[str, Entry] = {
    "let": Entry(
        YES,
        """steps:
  - let hosts = []
  - let hosts[] = web1
  - let integer count = ${size(hosts)} * 2
  - type: let
    variable: {name: plan, type: map}
    value: {hosts: '${hosts}', count: '${count}'}
""",
        (
            "The long form takes the value as it stands, with `${…}` anywhere in it; only the short form evaluates "
            "operators between words.",
        ),
    ),
    "clear-variable": Entry(YES, "steps:\n  - let x.a = 1\n  - let x.b = 2\n  - clear-variable x.a\n"),
    "transform": Entry(
        YES,
        """steps:
  - let names = [' web1', '', 'web2']
  - transform variable names | trim
  - transform list = ${names} | join ', ' | to_upper_case
  - transform value ${names} | first
""",
    ),
    "load": Entry(
        YES,
        "steps:\n  - load motd = /etc/motd\n  - step: load text = https://service.example/version\n    timeout: 10s\n",
        ("Reading is a job like any other: it may be retried, and has a `timeout`.",),
    ),
    "wait": Entry(
        YES,
        """steps:
  - step: wait ip = ${entity.sensor.ip_address}
    timeout: 1h
    on-error: fail message no address within an hour
  - log it is ${ip}
""",
        (
            "Every sensor that the expression looked at wakes it. Whoever sets one of them does so in one commit with "
            "the wake-up, so none is lost.",
        ),
    ),
    "log": Entry(
        YES,
        "steps:\n  - log beginning\n  - type: log\n    message: something is odd\n    level: warning\n",
    ),
    "sleep": Entry(YES, "inputs: {pause: {type: duration, default: 5m}}\nsteps:\n  - sleep ${pause}\n"),
    "fail": Entry(
        NO,
        """steps:
  - step: shell deploy
    on-error:
      - type: fail
        message: the deployment failed
        value: {stderr: '${error.value.stderr ?? ""}'}
""",
        (
            "`fail rethrow` is only possible in a handler. The `value` of the cause is kept unless there is a new one. "
            "A `fail` is never entered again by itself: it was meant.",
        ),
    ),
    "return": Entry(
        YES,
        "steps:\n  - step: return nothing to do\n    condition: ${workflow.run > 1}\n  - return: {done: true}\n",
        (
            "It ends the nearest workflow: through `if`, `subworkflow` and `switch`, but not out of `workflow`, "
            "`foreach`, a branch or a step type. A `next` on the step wins: then it is an ordinary step.",
        ),
    ),
    "no-op": Entry(YES, "steps:\n  - id: facts\n    step: no-op\n    output: {site: ams1}\n"),
    "goto": Entry(
        YES,
        """steps:
  - let n = 0
  - label again
  - let n = ${n} + 1
  - step: goto again
    condition: ${n < 3}
""",
        ("Loops of internal steps are fair: after about a thousand of them others have their turn.",),
    ),
    "label": Entry(
        YES, "steps:\n  - label again\n  - step: goto again\n    condition: ${entity.sensor.more ?? false}\n"
    ),
    "if": Entry(
        INSIDE,
        """inputs: {os: string}
steps:
  - if ${os} == debian then shell apt-get update
  - if: ${os in ['rhel', 'rocky']}
    steps:
      - shell dnf check-update
    else:
      - log nothing to do
""",
        ("Both sides of `==` must be there. Without `==` an absent value counts as false.",),
    ),
    "switch": Entry(
        INSIDE,
        """inputs: {os: string}
steps:
  - switch: ${os}
    cases:
      - step: shell apt-get update
        condition: debian
      - step: shell dnf check-update
        condition: {regex: 'rhel|rocky'}
      - fail message ${os} is not known
""",
    ),
    "subworkflow": Entry(
        INSIDE,
        """steps:
  - steps:
      - shell backup
      - shell install
    on-error: log neither of them is retried
    timeout: 10m
""",
        ("`goto end` inside of it ends the block; `return` ends the workflow.",),
    ),
    "workflow": Entry(
        INSIDE,
        """steps:
  - type: workflow
    lock: {name: dns, timeout: 5m}
    timeout: 10m
    steps:
      - shell update zone
    on-error:
      - retry limit 3 backoff 1s increasing 2x
  - workflow replayable from here
  - workflow retention forever
""",
        (
            "`on-error`, `finally`, `timeout`, `lock`, `replayable` and `output` belong to each nested run, not to the "
            "step as a whole. With a `target`, `condition` filters the targets.",
        ),
    ),
    "foreach": Entry(
        INSIDE,
        """inputs: {hosts: list}
steps:
  - id: versions
    foreach: host in ${hosts}
    concurrency: min(50%, 10)
    condition: {not: {glob: 'old-*'}}
    steps:
      - ssh to ${host} cat /etc/os-release
      - return ${host} runs ${output.stdout}
  - foreach: '{name, port} in [{name: a, port: 80}]'
    do: log ${name} on ${port}
  - foreach: n in 1..4
    reducing: {sum: 0}
    steps:
      - let sum = ${sum} + ${n}
  - return ${sum}
""",
        (
            "Outputs come in the order of the targets. When one fails, those that run are waited for, and no further "
            "one is begun. At most 100,000 targets.",
        ),
    ),
    "retry": Entry(
        YES,
        """steps:
  - step: http https://service.example/health
    idempotent: yes
    on-error:
      - step: retry limit 5 in 1m backoff 1s increasing 2x up to 1m jitter 10%
        condition: {error-field: kind, equals: block-error}
""",
        ("See [Retrying](#retrying) for all words.",),
    ),
    "set-sensor": Entry(
        YES,
        """steps:
  - let n = ${entity.sensor.count} ?? 0
  - workflow replayable from here
  - let next = ${n} + 1
  - type: set-sensor
    sensor: count
    value: ${next}
    require: {any: [{equals: '${n}'}, {when: absent}]}
    on-error: retry replay from start limit 10
replayable: from start
""",
        (
            "`require` is about the old value, of the place in brackets where there is one: `set-sensor states[web1] "
            "= up`. It fails as `requirement-absent` or `requirement-failed`.",
            "A sensor called `lock-NAME` is a view of the lock NAME: reading it gives the id of the execution that "
            "holds it, setting it takes the lock if it is free (and fails if not), clearing it takes it away from "
            "whoever holds it, which the history records.",
        ),
    ),
    "clear-sensor": Entry(YES, "steps:\n  - clear-sensor count\n  - clear-sensor states['web1'] on rack-7\n"),
    "set-config": Entry(YES, "steps:\n  - set-config size = large\n  - set-config string port on rack-7 = 8080\n"),
    "clear-config": Entry(YES, "steps:\n  - clear-config size on rack-7\n"),
    "block": Entry(
        BLOCK,
        """steps:
  - id: backup
    block: net.backup
    input: {host: edge-1, level: 3}
    timeout: 5m
    retry: {attempts: 3, delay: 10s}
    queue: amsterdam
  - net.backup host=edge-2 level=3
""",
    ),
    "invoke": Entry(
        INSIDE,
        """name: restart
inputs: {force: {type: boolean, default: no}}
steps:
  - log restarting ${entity.name}
---
name: maintenance
steps:
  - invoke restart on db1 with force=true
  - type: invoke
    workflow: restart
    args: {force: no}
""",
        (
            "The workflow is found when this one is published, and that version stays. It sees its inputs and nothing "
            "else, and runs inside of this execution: its steps are in this history, its locks may be entered again.",
        ),
    ),
    "approve": Entry(
        YES,
        """steps:
  - id: go
    approve: reboot the core switches?
    timeout: 8h
    on-error: return nobody said yes
  - log approved by ${steps.go.output.by}
""",
        (
            "The answer is also a signal, `approve/ID` with the id of the step, or its number: `{approved: true, by, "
            "note}`. What was answered before the step is reached counts.",
        ),
    ),
    "signal": Entry(YES, "inputs: {other: string}\nsteps:\n  - 'signal ready to ${other} with ${{port: 80}}'\n"),
    "wait-signal": Entry(
        YES, "steps:\n  - id: go\n    wait-signal: go\n    timeout: 1h\n  - return ${steps.go.output}\n"
    ),
    "parallel": Entry(
        INSIDE,
        """steps:
  - id: facts
    parallel:
      - {id: disk, step: shell df}
      - id: load
        steps:
          - shell uptime
          - return ${trim(output.stdout)}
  - return ${steps.facts.output.load}
""",
    ),
    "graph": Entry(
        INSIDE,
        """steps:
  - graph:
      network: shell make network
      database: {needs: network, step: shell make database}
      app:
        needs: [network, database]
        steps:
          - shell make app
          - shell check app
""",
        ("Circles and unknown nodes are found when the file is checked.",),
    ),
    "shell": Entry(
        NO,
        """inputs: {host: string}
steps:
  - id: ping
    shell: ping -c1 ${host}
    input: {exit_code: [0, 1], env: {LANG: C}}
    idempotent: yes
""",
        (
            "`${…}` is put into the command as it is; `${shell_quote(x)}` makes one word of whatever x holds. `env` "
            "passes values without any quoting.",
        ),
    ),
    "ssh": Entry(
        NO,
        """steps:
  - ssh to admin@web1.example uptime
  - step: ssh systemctl restart app
    input: {host: web2.example}
""",
        ("Without an endpoint, `host`, `user` and `port` come from the configuration of the entity.",),
    ),
    "http": Entry(
        NO,
        """steps:
  - id: create
    http: https://service.example/orders
    input: {method: post, body: {size: 3}, status_code: 201}
  - return ${steps.create.output.content.id}
""",
        ("`content` is the parsed value where the answer is JSON. Each attempt sends the same `Idempotency-Key`.",),
    ),
}

#: common key → on which steps it means something
WHERE: dict[str, str] = {
    "step": "all",
    "type": "all",
    "id": "all",
    "name": "all",
    "condition": "all; on `workflow` and `foreach` with a `target` it filters the targets",
    "input": "all",
    "output": "all; on `workflow` and `foreach` it is the output of each nested run",
    "next": "all",
    "on-error": "all; on `workflow` and `foreach` of each nested run",
    "finally": "all; on `workflow` and `foreach` of each nested run",
    "continue-on-error": "all",
    "timeout": "all; where a block runs, of each attempt; on `retry`, of all retries together",
    "retry": "where a block runs; on steps with steps inside it goes on at what failed there, like `on-error: retry`",
    "repeat": "all",
    "delay": "all",
    "assert": "all",
    "idempotent": "all but `fail`; on `workflow` and `foreach` also `all`",
    "replayable": "all; on `workflow` and `foreach` also the words of a workflow",
    "queue": "where a block runs",
    "run-on": "where a block runs, and steps with steps inside: then the whole of it is done for each entity",
    "acquire": "all",
    "metadata": "all",
}
