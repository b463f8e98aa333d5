"""The cleaner: log compaction, as a pass over one partition in four steps.

    a=1 b=2 | a=3 b=∅ | c=4*        offsets 0 1 | 2 3 | 4, the last segment active

A record is *obsolete* if a later record of its partition has the same key. A partition falls into

    [log start, first dirty)                  the clean section: what earlier passes have covered
    [first dirty, first uncleanable)          the cleanable section: what a pass may cover now
    [first uncleanable, log end)              the active segment, and what is too young

**plan** (pure)  Is it dirty enough, overdue, or full of tombstones that may go? Which segments does
                 the pass cover? Else `Nothing(reason)`, which is what `why` prints.
**mark** (Spark) Reads keys only, newest first. The last offset of every key of the cleanable
                 section goes into a map; every record whose key is already in it is dead. So are
                 tombstones past their horizon, and null keys. Above: 0:a=1 and 1:b=2.
**sweep** (Spark) Writes the survivors of files that have dead records into new files, merging small
                 neighbours: 2:a=3 3:b=∅. Files without dead records stay as they are.
**commit**       One transaction swaps the files, moves first dirty to 4, and writes the pass's row,
                 if the books add up.

The awkward cases:

1. More keys than the map holds: it keeps the half of the keys with one hash bit and comes back for
   the other half. Memory stays bounded; the keys are read once more.
2. A tombstone must outlive the pass that first covered it by `delete.retention.ms`. Which pass that
   was is in the passes' rows, for offsets are for ever; nothing is stamped into files. When it goes,
   what it deleted has long gone, for a pass is committed whole.
3. A consumer group that has not read a tombstone yet holds it back. One that has committed anything of
   a topic has read nothing of the partitions that it has not committed.
4. Appends never conflict with a pass; retention and deletion may, and then the pass changes nothing.
5. Log start may cut through a file: what lies below it goes when the file is rewritten.
6. Nothing is ever renumbered or reordered: a file's rows keep their offsets as deltas.

`plan` (and `choose`, which asks it) · `mark` (with `covered`, and `log.scan`) · `sweep` · `run` (a round:
all eligible partitions; with `work`, one of them, and `books`) · `service` (rounds for ever) · `why` ·
`verdicts` (the dry run) · `metrics`
"""
