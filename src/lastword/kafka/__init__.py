"""A real Kafka beside us: topics are copied from a cluster, offsets and all, and written back to one.

`cluster` asks Kafka, `plan` decides what is copied, `copy_task` stages it in executors, `mirror` does a
round and commits it. `publish` goes the other way. Records travel through Spark's own Kafka source and
sink; where they are is in the catalog alone: a mirror's position is its log end.
"""
