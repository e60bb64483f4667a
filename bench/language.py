"""CPU time of reading and checking a definition: `python -m bench.language [STEPS...]`.

The budget is 150 ms for 500 steps. The best of several rounds is printed, because everything above it is somebody
else's time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from holdfast.language import Text, load_all, load_workflows

ROUNDS = 7
#: twenty steps: those that people write most, and one of each of the rest
TWENTY = """\
- let x{n} = ${{count}} + {n} ?? 0
- log host ${{host}} has ${{x{n}}}
- id: check{n}
  step: shell uname -a {n}
  timeout: 5s
  condition: {{target: '${{x{n}}}', greater-than: 3}}
- block: net.push
  input: {{lines: [1, 2, {{text: '${{steps.check{n}.output.stdout}}'}}]}}
  retry: {{attempts: 3, delay: 1s}}
- step: sleep 5s
  name: a pause {n}
- step: http https://${{host}}/api/{n}
  on-error:
  - {{step: retry limit 5 backoff 1s increasing 2x up to 1m, condition: {{error-field: kind, equals: timeout}}}}
  - fail message ${{error.message}} at ${{host}}
- step: foreach item in ${{[1, 2, {n}]}}
  reducing: {{total: 0}}
  steps:
  - let total = ${{total}} + ${{item}}
  - log ${{item}} of ${{total}}
- if: ${{host}} == localhost
  steps: ['set-sensor seen{n} = ${{count}}']
  else: ['clear-sensor seen{n}']
- step: switch ${{x{n}}}
  cases:
  - {{step: no-op, condition: {n}}}
  - transform value ${{host}} | split . | first | to_upper_case
- type: workflow
  target: 1..3
  concurrency: max(1, 50%)
  lock: {{name: disk, timeout: 1m}}
  steps:
  - {{step: 'wait ${{entity.sensor.ready}}', timeout: 10s}}
- parallel:
  - id: a{n}
    steps: [net.pull]
  - id: b{n}
    steps: ['return ${{x{n} * 2}}']
"""
COUNTED = 20


def definition(steps: int) -> str:
    body = "".join(TWENTY.format(n=n) for n in range(steps // COUNTED))
    return f"name: large\ninputs: {{host: string, count: integer = 3}}\nretention: max(3, 7d)\nsteps:\n{body}"


def check_ms(text: str) -> float:
    return cpu_ms(lambda: load_workflows([Text(text)]))


def cpu_ms(work: Callable[[], object]) -> float:
    work()
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best * 1000


def main() -> None:
    print(f"{'steps':>6} {'bytes':>8} {'load ms':>9} {'load and check ms':>18}")
    for steps in [int(word) for word in sys.argv[1:]] or [500]:
        text = definition(steps)
        load = cpu_ms(lambda text=text: load_all(text))  # type: ignore[misc]
        both = check_ms(text)
        print(f"{steps:>6} {len(text):>8} {load:>9.1f} {both:>18.1f}")


if __name__ == "__main__":
    main()
