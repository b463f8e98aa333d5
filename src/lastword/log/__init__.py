"""The log: `records` → `batch` → `append`, and `read` back; in tasks, `staging` and `pieces`.

`scan` (with `offset_map`) finds what is obsolete, for the cleaner and for `latest`.
"""
