"""The light flow network: known motion of stills, then held-out real clips as the judge."""

from vsrkit.train.config import FlowConfig


def config() -> FlowConfig:
    """About 15 minutes on two cores: --set stills=FOLDER --set clips=FOLDER."""
    return FlowConfig(
        run_dir="runs/flow-light",
        stills="data/stills",
        clips="data/clips",
    )
