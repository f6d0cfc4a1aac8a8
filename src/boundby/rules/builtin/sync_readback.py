"""Small values copied to the host, for which it waits; where no operator range says who asked."""

from __future__ import annotations

from collections.abc import Iterator

from boundby.evidence import waits as _waits
from boundby.evidence.context import RuleContext
from boundby.rules.rule import Match, Remedy, Rule


def check(context: RuleContext) -> Iterator[Match]:
    waits = context.once(_waits.waits_of)
    rows = waits.of_kind(_waits.READBACK)
    for group in _waits.groups(context, waits, rows, ["read"] * len(rows)):
        saved, told = _waits.saving(context, waits, group)
        yield Match(
            region=group.region,
            title=f"a value is read back to the host {_waits.costs(group)}",
            evidence={
                **_waits.evidence(context, waits, group),
                **told,
            },
            saving_ns=saved,
            advice=_advice(context) + _waits.together_advice(context, told),
            examples=_waits.examples(context, waits, group),
            instances=group.incidents,
        )


def _advice(context: RuleContext) -> tuple[str, ...]:
    if not _waits.is_python(context):
        return (
            "Keep the value on the device, or read it one step later: copy it asynchronously into pinned memory, "
            "record an event, launch the next step, then look",
        )
    return (
        "Keep the value on the device and read it once every N steps: no .item(), float(t), if t: or print(t) in the "
        "step; torch.where in place of a branch",
        "To see which line asks: torch.cuda.set_sync_debug_mode('warn'), or capture with boundby profile --torch-ops",
    )


RULE = Rule(
    id="sync-readback",
    title="Single values are read back to the host, which waits for each",
    group="sync",
    picture="""
    host   launch launch |copy 4 B to host, wait ......| if value: launch
    GPU      [kernel     ][kernel           ][copy]               [kernel ]
                                                    ^^^^^^^^^^^^^ idle
    """,
    meaning="""
A copy of a few bytes from the device to the host, and a wait for it: a loss that is printed, a flag that
decides a branch, a length. The copy takes a microsecond, but it comes after all the work that was launched
before, and the host stands still until then. What the host launches afterwards reaches a GPU that has run dry.

Told by: a blocking or pageable copy of at most 1 KiB to the host, or a synchronization right after such a copy,
with GPU idle time behind it. Where operator ranges show which PyTorch operator asked, `sync-operator` reports
it instead.
""",
    remedies=(
        Remedy(
            "Let the value stay on the device, and read it seldom.",
            """
            running += loss.detach()          # no wait
            if step % 100 == 0:
                print(running.item() / 100)   # one wait in 100 steps
            """,
            caution="a loop that stops on a value has to read it: test it every few turns.",
        ),
        Remedy(
            "In CUDA C++, read back without waiting and look at the result one step later.",
            """
            cudaMemcpyAsync(host_flag, device_flag, sizeof(int), cudaMemcpyDeviceToHost, stream);  // host_flag: pinned
            cudaEventRecord(ready, stream);
            launch_next_step(stream);              // goes on at once
            cudaEventSynchronize(ready);           // by now it is most likely there
            """,
            "cpp",
            caution="the host acts on a value that is one step old.",
        ),
        Remedy(
            "Find the line that asks.",
            "torch.cuda.set_sync_debug_mode('warn')  # every synchronizing call warns with its Python stack",
        ),
    ),
    disproof="""
Replace the value by a constant and capture again: if the step takes as long, the wait cost nothing. If the
copies shown as examples are larger reads in disguise (a struct of results that the host needs), the wait cannot
go.
""",
    check=check,
    needs=("cuda_api", "kernels"),
    see_also=("sync-operator", "sync-call"),
    references={
        "PyTorch: torch.cuda.set_sync_debug_mode": (
            "https://pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html"
        )
    },
)
