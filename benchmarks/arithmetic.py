"""Count parameters and arithmetic of every model and write models/zoo/facts.json."""

import json
from pathlib import Path

import vsrkit.models.zoo
from vsrkit.models.zoo import list_models
from vsrkit.models.zoo.listing import count_facts

if __name__ == "__main__":
    counted = {name: count_facts(name) for name in list_models()}
    path = Path(vsrkit.models.zoo.__file__).with_name("facts.json")
    path.write_text(json.dumps(counted, indent=2) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))
