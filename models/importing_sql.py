"""The SQL of writing the snapshots of a file, many in one statement."""

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, BIGINT, INTEGER, TEXT, TIMESTAMP

_TEXTS = ARRAY(TEXT)
_BIGINTS = ARRAY(BIGINT)
_TIMES = ARRAY(TIMESTAMP(timezone=True))

# In the order of the lines, since a volatile function is called after sorting. Whether a snapshot was there is seen as of
# the statement's beginning, so not what it writes itself.
WRITE_SNAPSHOTS = text("""
    select exists (select from mneme.summary_nodes n
                    where n.session_id = l.session_id and n.level = 1 and n.retired_at is null
                      and n.span_start = l.span_start and n.span_end = l.span_end) as already_there,
           mneme.write_l1_snapshot(l.session_id, l.span_start, l.span_end, l.content,
                                   l.started_at, l.ended_at, l.token_count) as id
      from unnest(:session_ids, :span_starts, :span_ends, :contents, :starts, :ends, :token_counts) with ordinality
           as l (session_id, span_start, span_end, content, started_at, ended_at, token_count, position)
     order by l.position
""").bindparams(
    bindparam("session_ids", type_=_TEXTS),
    bindparam("span_starts", type_=_BIGINTS),
    bindparam("span_ends", type_=_BIGINTS),
    bindparam("contents", type_=_TEXTS),
    bindparam("starts", type_=_TIMES),
    bindparam("ends", type_=_TIMES),
    bindparam("token_counts", type_=ARRAY(INTEGER)),
)
