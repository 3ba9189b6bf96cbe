"""Which workers of a cluster may take part in a job, and what all of them must do the same way."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from vsrkit.cluster.worker import CallSettings, WorkerFacts, describe, rate
from vsrkit.errors import VsrkitError
from vsrkit.hardware.device import CANDIDATES, Precision, PrecisionName, resolve_precision
from vsrkit.hardware.instructions import UNKNOWN, least_level, pinned_environment
from vsrkit.inference.reference import EngineReference

log = logging.getLogger("vsrkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What all workers of a job do the same way, because it decides the bytes of the output."""

    precision: Precision
    device: str
    instructions: str | None  # level that all are pinned to
    memory: int  # bytes that the worker with the least has for each call


class Survey:
    """Asks workers of a Dask cluster about themselves, and refuses some by name."""

    def __init__(self, client: Any, *, same_bits: bool) -> None:
        self._client, self._same_bits = client, same_bits
        self._own = WorkerFacts()
        self._names: dict[str, str] = {}
        self._agreement: Agreement | None = None
        self._reference: EngineReference | None = None
        self._kinds: set[tuple[str, str]] = set()  # of processors
        self.refused: dict[str, str] = {}  # reasons by address

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """Variables that the processes of all workers are started with."""
        level = self._agreement.instructions if self._agreement else None
        return tuple(pinned_environment(level).items()) if level else ()

    def agree(
        self,
        alive: Mapping[str, Any],
        reference: EngineReference,
        *,
        precision: PrecisionName | Precision,
        device: str,
        instructions: str | None,
    ) -> Agreement:
        """Decide what is the same on all workers; arguments as for `DaskExecutor.agree`.

        alive: what the scheduler knows of each worker, by address.
        """
        facts = self._facts(alive)
        if not facts:
            raise VsrkitError(self._nobody())
        if device == "auto":
            int8 = isinstance(precision, str) and precision.startswith("int8")
            device = "cuda" if all(f.gpus for f in facts.values()) and not int8 else "cpu"
        level = instructions
        if level is None and self._same_bits:
            level = least_level(f.instructions for f in facts.values())
            if level == UNKNOWN:
                raise VsrkitError(
                    "--same-bits needs workers with x86 processors on Linux: the instruction sets "
                    "of others are not known"
                )
        self._reference = replace(reference, device=device)
        self._agreement = Agreement(
            precision=CANDIDATES[0],
            device=device,
            instructions=level,
            memory=min(f.memory // _slots_beside(a, alive, facts) for a, f in facts.items()),
        )
        if not isinstance(precision, Precision):
            precision = self._fastest(precision, facts)
        self._agreement = replace(self._agreement, precision=precision)
        return self._agreement

    def _fastest(self, name: PrecisionName, facts: Mapping[str, WorkerFacts]) -> Precision:
        """The fastest precision on the slowest kind of worker."""
        if name == "int8" or name == "int8-exact":
            # Integers gain about the same everywhere: the floats beside them decide.
            return replace(self._fastest("auto", facts), channels_last=True, int8=name)
        candidates = [c for c in CANDIDATES if name in ("auto", c.dtype)]
        rates = self._rates(facts, candidates)
        if not rates:
            raise VsrkitError(self._nobody())
        slowest = min(rates, key=lambda address: max(rates[address].values()))
        speeds, kind = rates[slowest], facts[slowest]
        own = (self._own.processor, self._own.instructions)
        if not self.environment and (kind.processor, kind.instructions) == own:
            # The choice of a run on this machine alone, which small differences do not change.
            assert self._reference is not None
            return resolve_precision(name, self._reference.load(), "cpu")
        best = max(speeds, key=lambda candidate: speeds[candidate])
        if speeds[best] == 0:
            raise VsrkitError(f"worker {self._names[slowest]} cannot compute in {name}")
        return best

    def admit(self, joined: Mapping[str, Any]) -> dict[str, WorkerFacts]:
        """The workers that may take part, by address; the others are refused by name."""
        assert self._agreement is not None
        facts = self._facts(joined)
        for address, found in list(facts.items()):
            level = self._agreement.instructions
            if self._agreement.device == "cuda" and not found.gpus:
                self.refuse(address, "it has no GPU")
            elif level and least_level((level, found.instructions)) != level:
                self.refuse(address, f"its processor has no {level} instructions")
        facts = {a: f for a, f in facts.items() if a not in self.refused}
        precision = self._agreement.precision
        rates = self._rates(facts, [precision])
        for address in facts:
            if address in rates and rates[address][precision] == 0:
                self.refuse(address, f"its processor cannot compute in {precision.name}")
        admitted = {a: f for a, f in facts.items() if a in rates and a not in self.refused}
        self._warn_if_mixed(admitted)
        return admitted

    def _warn_if_mixed(self, admitted: Mapping[str, WorkerFacts]) -> None:
        before = len(self._kinds)
        self._kinds |= {(f.processor, f.instructions) for f in admitted.values()}
        if self.environment or len(self._kinds) < 2 or before > 1:
            return
        kinds = "; ".join(sorted(f"{processor}, {level}" for processor, level in self._kinds))
        log.warning(
            "the processors of the workers differ (%s): the last bit of results, and so the bytes "
            "of the output, may depend on which worker computes what; with --same-bits they do not",
            kinds,
        )

    def refuse(self, address: str, reason: str) -> None:
        """Log that a worker cannot take part."""
        name = self._names.get(address, address)
        self.refused[address] = f"worker {name} is refused: {reason}"
        log.warning("%s", self.refused[address])

    def _nobody(self) -> str:
        reasons = list(self.refused.values()) or ["no worker answers"]
        return f"no worker can take part: {reasons[0]}"

    def _facts(self, alive: Mapping[str, Any]) -> dict[str, WorkerFacts]:
        """Facts about the workers whose versions are those of this process."""
        for address, about in alive.items():
            name = str(about.get("name", address))
            self._names[address] = address if name == address else f"{name} ({address})"
        found: dict[str, WorkerFacts] = {}
        for address, facts in self._ask(describe, alive).items():
            if isinstance(facts, WorkerFacts):
                other = [
                    f"{name} {theirs}, not {ours}"
                    for name, theirs, ours in (
                        ("vsrkit", facts.vsrkit, self._own.vsrkit),
                        ("torch", facts.torch, self._own.torch),
                        ("PyAV", facts.pyav, self._own.pyav),
                    )
                    if theirs != ours
                ]
                if other:
                    self._refuse_once(address, f"it has {' and '.join(other)}")
                else:
                    found[address] = facts
            elif not isinstance(facts, OSError):  # those of a worker that is gone already
                reason = " ".join(str(facts).split())
                self._refuse_once(address, f"it has another vsrkit or none ({reason})")
        return {a: f for a, f in found.items() if a not in self.refused}

    def _refuse_once(self, address: str, reason: str) -> None:
        if address not in self.refused:
            self.refuse(address, reason)

    def _rates(
        self, facts: Mapping[str, WorkerFacts], candidates: list[Precision]
    ) -> dict[str, dict[Precision, float]]:
        """Speeds by worker; those with other weights are refused."""
        threads = max(1, min((f.cores for f in facts.values()), default=1))
        settings = CallSettings(self.environment, threads)
        rates = {}
        answers = self._ask(rate, facts, self._reference, candidates, settings)
        for address, answer in answers.items():
            if isinstance(answer, dict):
                rates[address] = answer
            elif not isinstance(answer, OSError):
                self._refuse_once(address, " ".join(str(answer).split()))
        return rates

    def _ask(self, question: Any, addresses: Mapping[str, Any], *arguments: Any) -> dict[str, Any]:
        """The answers of workers, or the errors that they raised."""
        if not addresses:
            return {}
        return self._client.run(question, *arguments, workers=list(addresses), on_error="return")


def slots_of_worker(about: Mapping[str, Any]) -> int:
    """Calls that run at once on a worker: one for each GPU that it was given, or for each thread.

    about: what the scheduler knows of the worker.
    """
    return max(1, int(about.get("resources", {}).get("GPU", about["nthreads"])))


def _slots_beside(address: str, alive: Mapping[str, Any], facts: Mapping[str, WorkerFacts]) -> int:
    """Calls that run at once on the machine of a worker."""
    machine = facts[address].machine
    return sum(slots_of_worker(alive[a]) for a, f in facts.items() if f.machine == machine)
