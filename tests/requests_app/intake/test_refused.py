"""Values that are refused, each under its field: names that could become a path, numbers out of range, wrong types."""

from __future__ import annotations

from functools import partial

from tests.support.intake import chain, not_refused, reprocessing, with_step

EVIL = [
    "../../etc", "a b", "a\nb", "a\n", "a/b", "..", ".", "-rf", "a;b", "$(x)", "caf\u00e9", "a\u0660", "'", "a\x7f",
    "x" * 300, 5, True, ["a"], {"a": "b"},
]  # fmt: skip
NO_NUMBER = [0, -1, 1e300, True, "much", [1]]
NO_COUNT = [0, -5, True, 1.5, "many", float(2**80), [], {}]
NAMES = (
    "RequestName", "Campaign", "CMSSWVersion", "GlobalTag", "ConfigCacheUrl", "CouchDBName", "AcquisitionEra",
    "ProcessingString",
)  # fmt: skip
STEP_NAMES = ("StepName", "ConfigCacheID", "PrimaryDataset", "CMSSWVersion", "AcquisitionEra", "ProcessingString")
UNREADABLE = {
    "IncludeParents": ["maybe"], "OpenRunningTimeout": ["long"], "RunNumber": [-1], "RequiresGPU": ["perhaps"],
    "DeterministicPileup": [1], "TransientOutputModules": [["a b"]],
}  # fmt: skip


def test_names_and_numbers_at_the_top() -> None:
    bases = ["/store", "/store/", "/store/mc/", "/store/unmerged", "/store/temp/x", "/store/user/me", "/store/../mc"]
    bases += ["/eos/store/mc", "store/mc", "/store/mc/1/2"]
    values = {
        **dict.fromkeys(NAMES, EVIL), **UNREADABLE, **dict.fromkeys(("Memory", "TimePerEvent", "SizePerEvent"), NO_NUMBER),
        "MergedLFNBase": [*EVIL, *bases], "UnmergedLFNBase": [*EVIL, "/store/mc"],
        "ProcessingVersion": [0, -1, 2**31, "v1", 1.5, True],
        "StepChain": [0, -1, 11, 10**9, "three", None, True],
        "ScramArch": ["", [], ["el8_amd64_gcc12", "x y"], ["a_b_c", *(f"a_b_c{n}" for n in range(10))], 7],
    }  # fmt: skip
    assert not_refused(chain, values) == []


def test_names_and_numbers_in_a_step() -> None:
    document = partial(chain, AcquisitionEra="Era", ProcessingString="string")
    assert not_refused(lambda **fields: with_step(1, document(), **fields), dict.fromkeys(STEP_NAMES, EVIL), "Step1.") == []
    assert not_refused(partial(with_step, 2), {"InputFromOutputModule": EVIL}, "Step2.") == []
    counts = dict.fromkeys(("RequestNumEvents", "EventsPerJob", "EventsPerLumi"), NO_COUNT)
    assert not_refused(partial(with_step, 1), counts, "Step1.") == []
    efficiency = {"FilterEfficiency": [0, -0.5, 1.5, 1e-12, True, "much"]}
    assert not_refused(partial(with_step, 1), efficiency, "Step1.", alone=True) == []


def test_input_datasets() -> None:
    illegal = ["/a b/c/RAW", "//c/RAW", "/a/b", "/a/b/raw", "/a/../RAW", "/a/b/RAW/", "/a/b/RAW#1", "a/b/RAW"]
    assert not_refused(reprocessing, {"InputDataset": [*illegal, "/" + "x" * 100 + "/b/RAW", 7]}) == []


def test_extra_requirements_that_could_change_the_submit_file() -> None:
    expressions = [
        "true) || (true", "a) || (true", "(a", "a]", 'x == "y', "$(HOME)", "$ENV(PATH)", "$$(Arch)", "a\nqueue 100", "a; b",
        "a # b", "x // c", "x /* c", "a ==", "a b", "== 3", "`id`", 7, "x" * 3000,
    ]  # fmt: skip
    assert not_refused(chain, {"JobExtraMatchRequirements": expressions}, alone=True) == []


def test_parameters_of_gpus() -> None:
    params = [
        "{", "[]", '"x"', {"GPUMemoryMB": 0}, {"GPUMemoryMB": "lots"}, {"CUDARuntime": "new"}, {"CUDACapabilities": "7.5"},
        {"CUDACapabilities": ["7.5; rm"]}, {"GPUName": 'x" || true'}, {"Flavour": "blue"}, {"CUDADriverVersion": 5},
    ]  # fmt: skip
    assert not_refused(partial(chain, RequiresGPU="required"), {"GPUParams": params}, alone=True) == []
