"""What spec/batching.md section 2 notes, in the order of the columns that figures.py prints."""

NOTED_RUNS = {
    "shuffle": (16, 18, 2, 0.320, 0.524, 0.522, 94),
    "diversity_first": (11_024, 11_103, 11_024, 0.190, 0.388, 1.000, 5_258),
    "credit": (2, 2, 2, 0.046, 0.523, 0.523, 1.13),
}
NOTED_RUN_SHARES = {  # of the largest bucket's batches, in runs of 1, 2, 3, 4, 5 to 9, 10 and more
    "shuffle": (0.232, 0.234, 0.185, 0.132, 0.200, 0.017),
    "diversity_first": (0.641, 0.0, 0.0, 0.0, 0.0, 0.359),
    "credit": (0.823, 0.177, 0.0, 0.0, 0.0, 0.0),
}
NOTED_TAIL = {
    0.20: 12,
    0.30: 653,
    0.40: 3_775,
    0.45: 6_323,
    0.486: 8_518,
    0.50: 9_438,
    0.523: 11_023,
    0.55: 13_013,
    0.60: 16_978,
}
NOTED_WINDOWS = {  # by batches of a window: mean and worst distance, windows of one bucket, sd of the loss
    ("shuffle", 4): (0.411, 0.925, 0.074, 0.178),
    ("shuffle", 8): (0.280, 0.840, None, 0.126),
    ("shuffle", 32): (0.139, 0.371, 0.0, 0.064),
    ("diversity_first", 4): (0.398, 0.854, 0.190, 0.185),
    ("diversity_first", 8): (0.306, 0.689, None, 0.170),
    ("diversity_first", 32): (0.226, 0.477, 0.190, 0.160),
    ("credit", 4): (0.308, 0.429, 0.0, 0.075),
    ("credit", 8): (0.151, 0.331, None, 0.047),
    ("credit", 32): (0.041, 0.089, 0.0, 0.014),
}
NOTED_FLOOR = {4: 0.258, 8: 0.099, 32: 0.026}
NOTED_BALANCE = {  # 8 ranks x 4: per window linear and quadratic, per micro-step linear and quadratic
    "shuffle, strided": (1.026, 1.168, 1.029, 1.239),
    "diversity_first, strided": (1.025, 1.147, 1.029, 1.240),
    "credit, strided": (1.024, 1.121, 1.029, 1.241),
    "credit, dealt by cost": (1.021, 1.023, 1.027, 1.062),
}
