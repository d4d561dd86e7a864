"""The world that a broker lives in: clock, chance, disk and workers, as one value that is made once and handed down.

``real`` is this machine. ``simulated`` is a machine in memory, whose every event follows from a seed.
"""
