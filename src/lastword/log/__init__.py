"""The log: `records` → `batch` → `append`, and `read` back; in tasks, `staging` and `pieces`.

Its state: `scan` (with `offset_map`) finds what is obsolete, for the cleaner and for `alive`, which says
which records are the last of their keys. On that stand `latest` (with `scattered`, for keys in several
partitions), `changes` and `deleted`. `lookup` finds single keys by the files' indexes, `backlog` counts.
"""
