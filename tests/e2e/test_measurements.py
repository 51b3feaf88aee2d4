"""Measurements of `bench` that count what they measure."""

from pathlib import Path

from bench import adapter_cpu
from bench.child import model_provider
from bench.model_provider import model_name


async def test_the_adapter_is_measured_with_every_delta(tmp_path: Path) -> None:
    """It joins those that come in one read; a wrong count fails the measurement."""
    async with model_provider(tmp_path) as provider:
        assert min(await adapter_cpu.measure(provider.address, model_name(1_000), 1_000)) > 0
