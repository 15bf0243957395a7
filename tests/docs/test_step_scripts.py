"""The scripts that measure steps on a GPU run in small on a CPU."""

from __future__ import annotations

import pytest

from benchmarks import depth_step, image_input, vision_step


@pytest.mark.slow
def test_pictures_per_second(capsys: pytest.CaptureFixture[str]) -> None:
    assert vision_step.main(["--smoke"]) == 0
    out = capsys.readouterr().out
    for kind in vision_step.KINDS:
        assert f"eager     {kind} " in out
    assert "100 to 1000 bins" in out


@pytest.mark.slow
def test_time_and_memory_of_depth_maps(capsys: pytest.CaptureFixture[str]) -> None:
    assert depth_step.main(["--smoke"]) == 0
    out = capsys.readouterr().out
    assert "maps of 24 x 18: 864 latents of 8 numbers" in out
    assert out.count("vir ") == 2


def test_the_input_of_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    assert image_input.main(["--smoke", "--cores", "1"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["decode", "batches", "training"]
    assert "64 pictures of 16 x 16" in out and "waiting" in out


def test_the_goals_are_those_of_a_gpu() -> None:
    options = vision_step.parse([])
    assert (options.device, options.batches, options.size) == ("cuda", "64,256", 224)
    assert depth_step.map_size(options.size, options.size) == (112, 112)
    assert depth_step.parse([]).batch == 32
