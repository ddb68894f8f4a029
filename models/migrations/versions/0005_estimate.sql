-- Tokens by five kinds of characters: letters and white space of ASCII, its digits and punctuation, characters of two, three
-- and four bytes. By two lengths alone Arabic was counted twice, and a line of paths, ids and numbers a third.
create or replace function mneme.estimate_tokens(content text) returns integer
language sql immutable strict parallel safe
return ((20 * char_length(content)::bigint
       + 45 * (char_length(content) - char_length(regexp_replace(content, '[!-@[-`{-~]+', '', 'g')))
       + case when octet_length(content) = char_length(content) then 0 else
              16 * (octet_length(content) - char_length(content))
            + 26 * char_length(regexp_replace(content, '[^\u0800-\uffff]+', '', 'g'))
            + 212 * char_length(regexp_replace(content, '[^\U00010000-\U0010ffff]+', '', 'g')) end
       + 99) / 100)::integer;

-- What waits to be folded is compared with its summary, which is counted by the new estimate: where the old one was too low,
-- a sound summary would seem no smaller. What was folded keeps its counts, which are right beside one another.
update mneme.summary_nodes n set token_count = mneme.estimate_tokens(p.content)
  from mneme.message_parts p
 where p.message_id = n.id and p.part_index = 0
   and n.superseded_by is null and n.dismissed_at is null and n.retired_at is null and not n.degraded and n.level = 1
   and n.token_count < mneme.estimate_tokens(p.content);
