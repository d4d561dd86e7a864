"""The world that a broker lives in: clock, random numbers, disk, network and workers, real or simulated, as one value
that is made once and handed down; and what the process has of the machine: memory, descriptors, its service manager.

``real`` is this machine. ``simulated`` is a machine in memory, whose every event follows from a seed.
"""
