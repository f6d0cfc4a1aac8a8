"""A server of language models on the modelled machine, with known answers: what each step is, and what it takes.

A step prepares its batch, copies it to the device, runs the model eagerly or as a CUDA graph, and reads the tokens
back; between steps the scheduler works. A server that overlaps prepares the next step while the device works, and reads
the tokens of the step before.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from boundby.simulate.instructions import (
    US,
    Copy,
    GraphLaunch,
    Instruction,
    Launch,
    Node,
    Program,
    Range,
    Record,
    Sync,
    Work,
    program,
)
from boundby.simulate.machine import Do, Machine, Run, realise, simulate

Engine = Literal["vLLM", "vLLM on AMD", "SGLang", "TensorRT-LLM"]
ENGINES: tuple[Engine, ...] = ("vLLM", "vLLM on AMD", "SGLang", "TensorRT-LLM")


@dataclass(frozen=True)
class Batch:
    """What one step works on: prompts of so many tokens together, and requests that generate a token each."""

    prompts: int
    prompt_tokens: int
    generating: int

    @property
    def kind(self) -> str:
        return "mixed" if self.prompts and self.generating else "prefill" if self.prompts else "decode"

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.generating

    def name(self, engine: Engine, number: int) -> str:
        """What the engine calls the step."""
        context, asked, made = self.prompts, self.prompt_tokens, self.generating
        if engine == "vLLM":
            return f"execute_context_{context}({asked})_generation_{made}({made})"
        if engine == "vLLM on AMD":
            parts = f"sq{asked}sk{asked}sqsq{asked}sqsk{asked}", f"sq{made}sk{made}sqsq{made}sqsk{made}"
            return f"execute_{self.tokens}_context_{context}({parts[0]})_generation_{made}({parts[1]})"
        if engine == "SGLang":
            mode = {"prefill": "EXTEND", "mixed": "MIXED", "decode": "DECODE"}[self.kind]
            size = f" toks={self.tokens}" if context else ""
            return f"step[{mode} bs={context + made}{size}]"
        return f"[Executor] _forward_step {number}: {context} ctx reqs, {made} gen reqs"


@dataclass(frozen=True)
class Server:
    """What runs. Times in nanoseconds."""

    engine: Engine
    batches: Sequence[Batch]
    graphs: bool  # decode steps are CUDA graphs
    overlaps: bool
    layers: int = 12
    named: bool = True
    layered: bool = False  # ranges around all steps, and around each layer
    prepare_ns: int = 300 * US
    gap_ns: int = 500 * US
    machine: Machine = field(default_factory=Machine)
    seed: int = 0

    def program(self) -> Program:
        """One thread: steps with the scheduler's work between them."""
        body: list[Instruction] = []
        for number, batch in enumerate(self.batches):
            step: list[Instruction] = [Work(self.prepare_ns), Copy(64 * batch.tokens), *self._model(batch)]
            step += [Copy(8 * max(batch.generating, 1), "DtoH"), Record(f"sampled {number}")]
            late = number - 1 if self.overlaps else number
            if late >= 0:
                step.append(Sync("event", event=f"sampled {late}"))
            body += [Range(batch.name(self.engine, number), step)] if self.named else step
            body.append(Work(self.gap_ns))
        body = [Range("serve", body)] if self.layered else body
        return program(*body, Sync(), name="server")

    def _model(self, batch: Batch) -> list[Instruction]:
        attention = ["flash_fwd_kernel"] * (batch.prompts > 0) + ["BatchDecodeWithPagedKVCacheKernel"] * (
            batch.generating > 0
        )
        size = 20 * US + 60 * batch.tokens
        attends = [Node(name, size // (3 * len(attention))) for name in attention]
        layer = [*attends, Node("gemm_qkv", size // 3), Node("gemm_mlp", size)]
        sampling = Launch("sample", 8 * US)
        if self.graphs and batch.kind == "decode":
            return [GraphLaunch(layer * self.layers), sampling]
        launches = [Launch(node.kernel, node.ns) for node in layer]
        if self.layered:
            return [*(Range(f"layers.{number}", launches) for number in range(self.layers)), sampling]
        return [*launches * self.layers, sampling]

    def run(self) -> Run:
        return simulate(realise(self.program(), self.machine, self.seed))


def step_times(run: Run) -> list[int]:
    """What each step takes on the host that waits for its tokens: from the begin of its range to its end."""
    begun, lengths = 0, []
    for step, start, end in zip(run.script.threads[0].steps, run.start_ns[0], run.end_ns[0], strict=False):
        if step.do == Do.PUSH:
            begun = start
        elif step.do == Do.POP:
            lengths.append(end - begun)
    return lengths


def draw(seed: int) -> Server:
    """A random server: prefill, decode and mixed steps of several sizes."""
    chance = random.Random(f"server {seed}")
    batches = []
    for _ in range(chance.randint(24, 48)):
        kind = chance.choices(["prefill", "decode", "mixed"], [2, 6, 2])[0]
        prompts = chance.randint(1, 8) if kind != "decode" else 0
        tokens = prompts * chance.choice((64, 256, 512))
        batches.append(Batch(prompts, tokens, chance.choice((4, 12, 30, 60)) if kind != "prefill" else 0))
    return Server(
        chance.choice(ENGINES),
        tuple(batches),
        graphs=chance.random() < 0.5,
        overlaps=chance.random() < 0.5,
        layers=chance.randint(4, 24),
        prepare_ns=chance.randint(50, 1_500) * US,
        gap_ns=chance.randint(20, 2_000) * US,
        seed=seed,
    )


__all__ = ["ENGINES", "Batch", "Server", "draw", "step_times"]
