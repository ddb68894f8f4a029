"""What our estimate of tokens is worth: ``python -m benchmarks.tokens``.

For six kinds of text it stands beside the counts of a real tokenizer, one whose data comes inside a package of
the development group. Other tokenizers differ from this one by up to a third on the same text, and older ones by much more on
scripts that they were not made for, so a better fit to one of them would be worse for the next.
"""

from collections.abc import Callable
from pathlib import Path

import mistral_common
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from models import estimate_tokens

TOKENIZER = "tekken_240911.json"

TEXTS = {
    "English": [
        "The team met on Monday to talk about the migration. Ada argued that the indexes had to be rebuilt twice, and Bob"
        " agreed after he had looked at the figures from last week's rehearsal. They decided to postpone the launch until the"
        " backups had been restored once on another machine, since nobody could say how long that would take.",
        "Marta wants the report by Thursday, without the appendix. She prefers tables to charts, and asked twice that every"
        " amount be given in euros. Until now only the second chapter has been read by anybody; its tone was found too formal.",
    ],
    "code": [
        '''def merge(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
''',
        """const waiting = new Map();
export async function once(key, load) {
  if (!waiting.has(key)) {
    waiting.set(key, load(key).finally(() => waiting.delete(key)));
  }
  return waiting.get(key); // the same promise for all
}
""",
        """create index concurrently if not exists orders_open on shop.orders (customer_id, created_at desc)
    where cancelled_at is null and paid_at is null;
select o.id, sum(l.amount * l.price)::numeric(12, 2) as total from shop.orders o join shop.lines l on l.order_id = o.id
 group by o.id having count(*) > 3 order by total desc limit 20;
""",
    ],
    "Chinese": [
        "团队在周一讨论了数据库迁移的问题。阿达认为索引需要重建两次，鲍勃看了上周演练的数据之后表示同意。他们决定推迟发布，"
        "直到备份在另一台机器上成功恢复为止，因为没有人知道这需要多长时间。",
        "玛尔塔希望在星期四之前收到报告，不需要附录。她喜欢表格而不是图表，并且两次要求所有金额都用欧元表示。",
    ],
    "Japanese": [
        "月曜日の会議では、データベースの移行について話し合いました。エイダはインデックスを二回作り直す必要があると主張し、"
        "ボブも先週のリハーサルの数字を見て賛成しました。バックアップを別のマシンで復元できるまで、リリースを延期することに決めました。",
        "マルタは木曜日までに報告書を欲しがっています。グラフより表を好み、金額はすべてユーロで書くように二度頼みました。",
    ],
    "Arabic": [
        "اجتمع الفريق يوم الاثنين لمناقشة نقل قاعدة البيانات. قالت آدا إن الفهارس يجب أن تبنى مرتين، ووافق بوب بعد أن اطلع على"
        " أرقام تجربة الأسبوع الماضي. قرروا تأجيل الإطلاق حتى تستعاد النسخ الاحتياطية على جهاز آخر.",
        "تريد مارتا التقرير قبل يوم الخميس من دون الملحق. تفضل الجداول على الرسوم، وطلبت مرتين أن تكتب كل المبالغ باليورو.",
    ],
    "emoji": [
        "🎉🚀😀👍🙏🔥😂🥳🎂🌍✅🐛💡📈😅🤔👀🙌💯🍕🐍🧪",
        "Great news 🎉🎉 the deploy is done 🚀 and the tests are green ✅✅ thanks everyone 🙏 see you tomorrow 👋😄",
    ],
}  # fmt: skip


def real_counter() -> Callable[[str], int]:
    """Return what counts the tokens of a text, by the real tokenizer."""
    tokenizer = Tekkenizer.from_file(Path(mistral_common.__file__).parent / "data" / TOKENIZER)
    return lambda text: len(tokenizer.encode(text, bos=False, eos=False))


def main() -> None:
    """Print a line for each kind of text."""
    count = real_counter()
    print(f"{'':10}{'characters':>12}{'real tokens':>13}{'estimate':>10}{'ratio':>8}{'characters/4':>15}{'ratio':>8}")
    for kind, texts in TEXTS.items():
        real, ours = sum(map(count, texts)), sum(map(estimate_tokens, texts))
        characters = sum(map(len, texts))
        print(
            f"{kind:10}{characters:12}{real:13}{ours:10}{ours / real:8.2f}{characters // 4:15}{characters / 4 / real:8.2f}"
        )


if __name__ == "__main__":
    main()
