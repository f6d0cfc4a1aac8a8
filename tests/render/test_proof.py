"""An experiment's result on the terminal and as a page."""

from __future__ import annotations

from msgspec.structs import replace

from boundby.document.proof_document import document
from boundby.render import to_html, to_terminal
from boundby.results.proof import Estimate, MeasuredCondition, Proof, ProvenPart, Removal

PROOF = Proof(
    command="python train.py <b>",
    steps=222,
    step_ns=7_000_000,
    steps_by="the optimizer's steps",
    spread_ns=(6_800_000, 7_400_000),
    conditions=(
        MeasuredCondition(delayed=(), delay_ns=0, blocks=13, step_ns=(6_900_000, 7_000_000, 7_100_000)),
        MeasuredCondition(delayed=("host", "input"), delay_ns=900_000, blocks=4, step_ns=(7.8e6, 7.9e6, 8e6)),
    ),
    parts=(
        ProvenPart(
            part="host",
            where="before the launches",
            slope=Estimate(-0.001, -0.1, 0.12),
            saved_per_ns=Estimate(0.0, 0.0, 0.03),
            reach_ns=1_200_000,
        ),
        ProvenPart(
            part="input",
            where="the loader's 2 workers",
            slope=Estimate(1.02, 0.9, 1.1),
            saved_per_ns=Estimate(1.0, 0.92, 1.0),
            reach_ns=1_700_000,
        ),
    ),
    bound="input",
    confidence="high",
    bound_next="host",
    likely={"input": 0.99, "host": 0.01},
    court_row={"bound": ("host_blocked",)},
    bound_by_trace="host_blocked",
    agreement="agree",
    agreement_because="A millisecond saved is worth: host 0.00, input 1.00.",
    removals=(Removal(id="input_free", promised_ns=(3_000_000, 4_000_000), measured_ns=(-100_000, 3_900_000)),),
    doubts=("No device was found to delay: what one is worth was not measured.",),
)


def test_the_screen_says_the_answer_first() -> None:
    lines = to_terminal.render(document(PROOF), width=100).splitlines()
    assert lines[0] == "The loader sets the pace (high confidence)"
    text = " ".join(" ".join(lines).split())
    assert "input 1.00 [0.92, 1.00] 1.02 [0.90, 1.10] the loader's 2 workers" in text
    assert "host 0.00 [0.00, 0.03] 0.00 [-0.10, 0.12] before the launches" in text
    assert "for the first 1.20 ms saved of host and 1.70 ms saved of input." in text
    assert "Next, once the loader takes no time: the host sets the pace." in text
    assert "The trace says blocked; the experiment agrees." in text
    assert "input_free 3.00 ms to 4.00 ms -100 us to 3.90 ms" in text
    assert "! No device was found to delay" in text
    assert all(len(line) <= 100 for line in lines)


def test_what_cannot_be_told_claims_no_confidence() -> None:
    shown = to_terminal.render(document(replace(PROOF, bound="unknown", confidence="low", bound_next=None)))
    assert shown.startswith("It cannot be told what sets the pace\n")
    assert "How probable each answer is: input 99 %." in shown


def test_the_page_has_all_of_it_and_escapes_the_command() -> None:
    page = to_html.page(document(PROOF))
    assert "python train.py &lt;b&gt;" in page
    assert "The loader sets the pace (high confidence)</h1>" in page
    assert "host + input" in page
    assert "host_blocked" not in page.split("<main", 1)[1].split("</main>")[0]
