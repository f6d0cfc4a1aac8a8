"""Everything that has to do with running nsys: find it, record with it, and export a report through it.

nsys can fail and still leave with status 0, so what it wrote is checked and not only how it ended.
"""
