"""What agents and scripts read: the brief, and the tools of ``boundby mcp``. Six real traces, five questions each."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from boundby import api
from boundby.cli.main import COMMANDS, main
from boundby.model.causes import SCENARIOS
from boundby.render import brief
from boundby.results.report import Report
from tests.support import reports
from tests.support.traces import analysis_of

#: trace -> where the time goes, which region, a word of why, what first, at least how much of the window it would save
ANSWERS = {
    "pair_lm_fp32.sqlite": ("gpu_compute", "backward", "kernels", "stop-sharing", 0.20),  # another had it for half
    "pytorch_a100_all_cpu_tables.sqlite": (
        "host_blocked",
        "Epoch */Train/Data loading",
        "blocked",
        "host_blocked.workers",
        0.20,
    ),
    "openmp_heat_before.sqlite": ("gpu_copy", "", "copies", "gpu_copy.keep-on-device", 0.50),
    "pair_chunks_of_1000.sqlite": ("cuda_api", "iteration", "launches", "cuda_api.larger-chunks", 0.20),
    "transformer_2_7b_nvtx.sqlite": (
        "mixed",
        "benchmark_loop",
        "compute takes 43 %",
        "gpu_compute.lower-precision",
        0.1,
    ),
    "openacc_mpi_4_processes_4_gpus.sqlite": ("init", "iteration", "is prepared", "init.runtime-start", 0.0),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_five_questions_of_a_real_trace(name: str) -> None:
    cause, region, why, first, least = ANSWERS[name]
    text = brief.render(analysis_of(name).report)
    assert len(text) <= brief.MOST_CHARACTERS
    told = json.loads(text)
    verdict = told["verdicts"][0]
    assert verdict["bound"] == cause
    assert max(verdict["time_ms"], key=lambda key: verdict["time_ms"][key]) in (cause, "gpu_compute", "gpu_copy")
    assert any(region in one["path"] for one in told["regions"]) or not region
    assert why in verdict["why"]
    assert told["first"][0]["id"] == first
    low, high = told["first"][0]["saves_ms"] or told["first"][0]["moves_ms"]  # init: it is paid all the same
    assert least * verdict["window_ms"] <= high <= verdict["window_ms"]
    assert 0 <= low <= high
    assert told["first"][0]["command"].startswith("boundby ")


@pytest.mark.parametrize("report", [reports.sample(), reports.hostile(), reports.many_devices(64), reports.empty()])
def test_a_brief_is_short_and_is_json(report: Report) -> None:
    text = brief.render(report)
    assert len(text) <= brief.MOST_CHARACTERS
    assert brief.tokens(text) <= brief.MOST_TOKENS
    assert json.loads(text)["brief"] == 1


def test_tokens_are_estimated() -> None:
    """114 by o200k_base and by cl100k_base (npm's gpt-tokenizer)."""
    text = (
        '{"id":"GPU 0","bound":"cuda_api","confidence":"high","why":"GPU idle 64 % while the host launches, 16.2 calls '
        'per ms, busy 14 %","window_ms":84.5,"time_ms":{"gpu_compute":8.4,"gpu_comm":2.58,"cuda_api":53.9},'
        '"max_saving_ms":62.7,"then":"cpu"},{"name":"_ZN2at6native29vectorized_elementwise_kernelILi4E","count":72,'
        '"ms":0.381}'
    )
    assert brief.tokens(text) == pytest.approx(114, rel=0.05)
    assert brief.tokens("重" * 1000) > 1000  # names in other scripts cost more


SAMPLE = Path(__file__).parents[2] / "sample_reports" / "simulated_sync.sqlite"


def test_a_brief_says_nothing_twice() -> None:
    """What a first response says its finding names by the response's id."""
    told = json.loads(brief.render(api.analyze(SAMPLE)))
    assert told["findings"][0]["what"] == f"as {told['first'][0]['id']}"
    assert told["first"][0]["because"]


def test_ids_are_the_same_in_every_run() -> None:
    one, other = (api.analyze(SAMPLE) for _ in range(2))
    assert [item.id for item in one.findings] == [item.id for item in other.findings]
    assert len({item.id for item in one.findings}) == len(one.findings)


def test_the_brief_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(SAMPLE), "--format", "brief", "-q"]) == 0  # boundby REPORT is boundby analyze REPORT
    assert json.loads(capsys.readouterr().out)["verdicts"][0]["bound"] == "sync"
    assert main(["analyse", "x"]) == 2
    assert "Did you mean analyze?" in capsys.readouterr().err


def test_the_guide_names_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent-guide"]) == 0
    guide = capsys.readouterr().out
    named = set(re.findall(r"^    boundby ([a-z-]+)", guide, re.MULTILINE))
    assert {"profile", "analyze", "explain", "what-if", "compare", "check", "job", "mcp"} <= named <= {*COMMANDS}
    assert all(f"`{key}" in guide for key in ("verdicts", "first", "findings", "not_told"))


def test_items_are_one_for_each_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(SAMPLE), "--format", "items", "-q"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    found = api.analyze(SAMPLE).findings
    assert [one["id"] for one in items] == [item.id for item in found]
    for one, item in zip(items, found, strict=True):
        assert one["magnitudeMs"] * 1e6 == pytest.approx((item.saving_ns or (0, 0))[1], abs=100)
        assert (one["status"] == "note") == (item.severity == "note")
        assert all(one[key] for key in ("boundingResource", "headroomVerdict", "evidence"))


def test_tools_of_mcp() -> None:
    pytest.importorskip("mcp")
    from boundby.cli.mcp import MOST_CHARACTERS, server, what_if

    assert set(SCENARIOS) <= set(re.findall(r"\w+", what_if.__doc__ or ""))

    made = server()
    assert [tool.name for tool in asyncio.run(made.list_tools())] == [
        *("analyze", "region", "finding", "explain", "what_if", "compare", "check", "job", "serving", "instances")
    ]

    def call(name: str, **arguments: Any) -> str:
        result: Any = asyncio.run(made.call_tool(name, {"report": str(SAMPLE), **arguments}))
        content = getattr(result, "content", result)
        text: str = content[0].text
        assert len(text) <= MOST_CHARACTERS
        return text

    told = json.loads(call("analyze"))
    assert told["verdicts"][0]["bound"] == "sync"
    assert json.loads(call("region", path=told["regions"][0]["path"]))["found"]
    assert json.loads(call("finding", id=told["findings"][0]["id"]))["found"][0]["advice"]
    assert json.loads(call("what_if", scenario="no_sync"))["found"][1]["predicted_ns"] > 0
    assert json.loads(call("instances", path=told["regions"][0]["path"]))["found"][0]["host_ns"]

    assert "kept" in call("check", limits=["step.time < 1 s"])
    for word in (told["first"][0]["id"], told["findings"][0]["id"], "host code"):
        (page,) = asyncio.run(made.call_tool("explain", {"word": word})).content  # type: ignore[union-attr]
        assert page.text.startswith("# ")  # type: ignore[union-attr]

    near = told["regions"][0]["path"][:-1]
    assert json.loads(call("region", path=near))["hint"].startswith("Did you mean ")
    assert json.loads(call("instances", path="nowhere"))["there_are"]
    assert json.loads(call("finding", id="nothing"))["found"] == []
    from mcp.server.mcpserver.exceptions import ToolError

    for name, arguments, words in (  # what is wrong comes first
        ("what_if", {"scenario": "nosync"}, "(?:^|: )'nosync' is not a scenario. Did you mean no_sync"),
        ("analyze", {"report": "absent.sqlite"}, "(?:^|: )absent.sqlite does not exist"),
    ):
        with pytest.raises(ToolError, match=words):
            call(name, **arguments)
