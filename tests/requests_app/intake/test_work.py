"""Generation and input: the numbers that say how work is cut."""

from __future__ import annotations

from typing import Any

import pytest

from dags_app.planning.specs import GenerationSpec, SplittingAlgo
from requests_app.intake import work
from tests.support.intake import Document, chain, problems, read, reprocessing, with_step


def _made(document: Document) -> GenerationSpec:
    made = read(document).spec.generation
    assert made is not None
    return made


def test_a_generation_has_the_documents_numbers() -> None:
    made = _made(chain(FirstEvent=10_001, FirstLumi=101))
    assert made == GenerationSpec(
        run=1, first_event=10_001, first_lumi=101, events=10_000, events_per_job=1_000, events_per_lumi=100
    )


@pytest.mark.parametrize(
    ("asked", "efficiency", "events"),
    [(1000, 0.3, 3333), (1000, 1, 1000), (10, "0.5", 20), (1, 0.9, 1), (2000, 0.001, 2_000_000)],
)
def test_more_is_generated_when_a_filter_drops_events(asked: int, efficiency: Any, events: int) -> None:
    assert _made(with_step(1, RequestNumEvents=asked, FilterEfficiency=efficiency)).events == events


@pytest.mark.parametrize(
    ("per_job", "per_lumi", "total", "result"),
    [
        (1250, 300, 100_000, (1200, 300)),
        (1180, 300, 100_000, (1200, 300)),
        (1350, 300, 100_000, (1200, 300)),  # 4.5 lumis: half to even
        (1050, 300, 100_000, (1200, 300)),  # 3.5 lumis: half to even
        (100, 300, 100_000, (100, 100)),  # a lumi is never larger than a job
        (1000, ..., 100_000, (1000, 1000)),
        (1000, 100, 500, (500, 100)),  # no job is larger than the request
        (5000, 300, 1180, (1200, 300)),  # rounding may ask for more than there is; the last job is shorter
        ("1000", 100.0, 100_000, (1000, 100)),
    ],
)
def test_events_per_job_are_a_multiple_of_events_per_lumi(
    per_job: Any, per_lumi: Any, total: int, result: tuple[int, int]
) -> None:
    made = _made(with_step(1, EventsPerJob=per_job, EventsPerLumi=per_lumi, RequestNumEvents=total))
    assert (made.events_per_job, made.events_per_lumi) == result


@pytest.mark.parametrize(("seconds", "per_job"), [(40, 1080), (12, 3600), (0.5, 86_400), (50_000, 1), (..., 3600)])
def test_a_job_without_events_per_job_takes_twelve_hours(seconds: Any, per_job: int) -> None:
    document = with_step(1, chain(TimePerEvent=seconds), EventsPerJob=..., EventsPerLumi=..., RequestNumEvents=10**6)
    assert _made(document).events_per_job == per_job


def test_the_first_step_may_leave_its_algorithm_out() -> None:
    assert _made(with_step(1, SplittingAlgo=...)).events == 10_000


@pytest.mark.parametrize("algorithm", ["LumiBased", "EventAwareLumiBased", "FileBased", "Nonsense", 3])
def test_generation_is_never_mapped_to_event_based(algorithm: Any) -> None:
    assert "EventBased only" in problems(with_step(1, SplittingAlgo=algorithm))["Step1.SplittingAlgo"]


@pytest.mark.parametrize("algorithm", ["LumiBased", "FileBased", "EventBased", "Nonsense"])
def test_the_algorithm_of_a_later_step_is_not_used(algorithm: str) -> None:
    assert read(with_step(2, SplittingAlgo=algorithm, LumisPerJob=3)).spec == read(chain()).spec


def test_a_generation_must_say_how_many_events() -> None:
    assert problems(with_step(1, RequestNumEvents=...)) == {"Step1.RequestNumEvents": "is missing"}


def test_too_many_events_after_the_filter_are_refused() -> None:
    assert "at most" in problems(with_step(1, RequestNumEvents=10**12, FilterEfficiency=0.1))["Step1.RequestNumEvents"]


def test_events_count_in_64_bits() -> None:
    last = 2**63 - 2
    assert _made(chain(FirstEvent=last - 9_999)).first_event == last - 9_999
    assert "FirstEvent" in problems(chain(FirstEvent=last - 9_998))


def test_lumis_count_in_32_bits() -> None:
    last = 2**32 - 1
    assert _made(chain(FirstLumi=last - 99)).first_lumi == last - 99
    assert "FirstLumi" in problems(chain(FirstLumi=last - 98))


def test_more_jobs_than_anybody_means_are_refused() -> None:
    assert (
        "makes 1000000000 jobs"
        in problems(with_step(1, RequestNumEvents=10**9, EventsPerJob=1, EventsPerLumi=1))["Step1.EventsPerJob"]
    )


def test_work_at_the_top_of_a_chain_is_refused_unless_the_first_step_says_the_same() -> None:
    assert "Step1.EventsPerJob" in problems(chain(EventsPerJob=5))["EventsPerJob"]
    assert "InputDataset" in problems(chain(InputDataset="/MuonEG/Run2024C-v1/RAW"))
    assert read(chain(EventsPerJob=1_000, ConfigCacheID=None, InputDataset="")).spec == read(chain()).spec


def test_a_reprocessing_is_cut_by_files() -> None:
    found = read(reprocessing()).spec
    assert found.generation is None
    assert found.input is not None
    assert found.input.dataset == "/MuonEG/Run2024C-v1/RAW"
    assert (found.splitting.algorithm, found.splitting.files_per_job) == (SplittingAlgo.FILE_BASED, 2)
    assert read(reprocessing(FilesPerJob=...)).spec.splitting.files_per_job == 1


def test_a_reprocessing_is_cut_by_events_of_which_twelve_hours_are_the_default() -> None:
    splitting = read(reprocessing(SplittingAlgo="EventBased")).spec.splitting
    assert (splitting.algorithm, splitting.events_per_job) == (SplittingAlgo.EVENT_BASED, 5400)
    assert read(reprocessing(SplittingAlgo="EventBased", EventsPerJob="700")).spec.splitting.events_per_job == 700


def test_events_per_lumi_do_not_round_a_reprocessing() -> None:
    splitting = read(reprocessing(SplittingAlgo="EventBased", EventsPerJob=1250, EventsPerLumi=300)).spec.splitting
    assert (splitting.events_per_job, splitting.events_per_lumi) == (1250, 0)


@pytest.mark.parametrize("algorithm", SplittingAlgo)
def test_every_algorithm_cuts_an_input(algorithm: SplittingAlgo) -> None:
    splitting = read(reprocessing(SplittingAlgo=algorithm.value, LumisPerJob=7)).spec.splitting
    assert (splitting.algorithm, splitting.lumis_per_job) == (algorithm, 7)


def test_the_default_algorithm_is_by_lumis_with_an_eye_on_events() -> None:
    splitting = read(reprocessing(SplittingAlgo=...)).spec.splitting
    assert (splitting.algorithm, splitting.events_per_job) == (SplittingAlgo.EVENT_AWARE_LUMI_BASED, 5400)


def test_an_algorithm_without_a_splitter_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "SPLITTERS", {SplittingAlgo.FILE_BASED: object})
    assert problems(reprocessing(SplittingAlgo="LumiBased")) == {"SplittingAlgo": "not yet supported: LumiBased splitting"}
    assert "EventAwareLumiBased splitting, the default" in problems(reprocessing(SplittingAlgo=...))["SplittingAlgo"]


def test_an_unknown_algorithm_is_refused() -> None:
    assert "must be FileBased" in problems(reprocessing(SplittingAlgo="Magic"))["SplittingAlgo"]


def test_a_reprocessing_without_input_is_refused() -> None:
    assert problems(reprocessing(InputDataset=...)) == {"InputDataset": "is missing"}


def test_a_chain_reads_an_input_dataset_in_its_first_step() -> None:
    document = with_step(
        1,
        InputDataset="/MinBias/Run3-v1/GEN-SIM",
        SplittingAlgo="EventBased",
        EventsPerJob=1250,
        EventsPerLumi=300,
        RequestNumEvents=...,
    )
    found = read(document).spec
    assert found.generation is None
    assert found.input is not None
    assert found.input.dataset == "/MinBias/Run3-v1/GEN-SIM"
    assert (found.splitting.events_per_job, found.splitting.events_per_lumi) == (1200, 300)


def test_numbers_of_a_generation_are_warned_of_when_there_is_input() -> None:
    warnings = read(reprocessing(RequestNumEvents=500, FirstEvent=1, EventsPerLumi=5)).spec.warnings
    assert warnings == (
        "RequestNumEvents: not used: the request reads an input dataset",
        "EventsPerLumi: not used: the request reads an input dataset",
    )
