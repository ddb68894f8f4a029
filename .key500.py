"""500 due sessions, wrong key, first minute; then mended."""
import sys, time, re
from pathlib import Path
import tempfile
from tests.support import model_server as says
from tests.support.model_server import model_server
from tests.support.servers import postgres_server, redis_server
from tests.support.processes import celery_worker, process, celery, wait_until
from tests.support.snapshots import write
from models import make_engine, migrate
from sqlalchemy import text
with postgres_server() as pg, redis_server() as redis_url, model_server() as server, tempfile.TemporaryDirectory() as d:
    d=Path(d)
    pg.execute("create database k")
    engine=make_engine(pg.url("k").replace("postgresql:","postgresql+psycopg:"))
    migrate(engine)
    for n in range(500): write(engine,f"s{n}",range(5))
    env={"DATABASE_URL":pg.url("k"),"REDIS_URL":redis_url,"MNEME_LLM__MODEL":"m","OPENAI_BASE_URL":server.url,"OPENAI_API_KEY":"wrong"}
    server.answer=says.fails(401)
    
    def scalar(s):
        with engine.connect() as c: return c.execute(text(s)).scalar()
    with celery_worker(env,d/"1.log") as a, celery_worker(env,d/"2.log") as b, process(celery("beat"),env,d/"beat.log"):
        server.wait_for_calls(1,90); t=time.time()
        time.sleep(60)
        print("slots 16; calls in the first minute", len(server.calls), flush=True)
        t=time.time(); server.answer=says.saves("Short.")
        while scalar("select count(*) from mneme.summary_nodes where level=2")<500 and time.time()-t<400: time.sleep(2)
        print("folded", scalar("select count(*) from mneme.summary_nodes where level=2"), "in", round(time.time()-t), "s after the key was mended; calls in all", len(server.calls), flush=True)
        print(scalar("select string_agg(state||' '||n, ', ') from (select state,count(*) n from mneme.compaction_runs group by 1) x"))
    engine.dispose()
