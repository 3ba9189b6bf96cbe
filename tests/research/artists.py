"""The data of a matplotlib figure, read from its artists."""


def lines_of(axes):
    """The lines of one panel: label -> (x, y) as lists."""
    found = {line.get_label(): line for line in axes.get_lines()}
    assert len(found) == len(axes.get_lines())
    return {name: (list(x.get_xdata()), list(x.get_ydata())) for name, x in found.items()}
