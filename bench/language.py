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
#: five steps of the kinds that people write most
FIVE = """\
- let x{n} = ${{count}} + {n} ?? 0
- log host ${{host}} has ${{x{n}}}
- id: check{n}
  step: shell uname -a {n}
  timeout: 5s
  condition: {{target: '${{x{n}}}', greater-than: 3}}
- block: net.push
  input: {{lines: [1, 2, {{text: '${{steps.check{n}.output.stdout}}'}}]}}
- step: sleep 5s
  name: a pause {n}
"""


def definition(steps: int) -> str:
    body = "".join(FIVE.format(n=n) for n in range(steps // 5))
    return f"name: large\ninputs: {{host: string, count: integer = 3}}\nsteps:\n{body}"


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
        both = cpu_ms(lambda text=text: load_workflows([Text(text)]))  # type: ignore[misc]
        print(f"{steps:>6} {len(text):>8} {load:>9.1f} {both:>18.1f}")


if __name__ == "__main__":
    main()
