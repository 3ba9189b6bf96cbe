"""Recipe for the light flow network: synthetic motion of still images, then also real clips."""

from vsrkit.train.config import FlowConfig


def config() -> FlowConfig:
    """About 15 minutes on two cores: --set stills=FOLDER --set clips=FOLDER."""
    return FlowConfig(run_dir="runs/flow-light", stills="data/stills", clips="data/clips")
