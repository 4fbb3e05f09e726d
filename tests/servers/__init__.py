"""Real servers for the tests, private to a run, however the machine can provide them.

For each backend the first of: a URL in the environment, a container, a program on the machine,
a program from a wheel of the `servers` extra. `fixtures` has them as pytest fixtures.
"""

from .postgres import PostgresServer, start_postgres
from .redis import RedisServer, start_redis
from .s3 import S3Server, start_s3
from .server import OURS, SOURCES, NoServerError, NotOursError, Server, Source
from .strict_s3 import Fault, Request, StrictS3

__all__ = [
    "OURS",
    "SOURCES",
    "Fault",
    "NoServerError",
    "NotOursError",
    "PostgresServer",
    "RedisServer",
    "Request",
    "S3Server",
    "Server",
    "Source",
    "StrictS3",
    "start_postgres",
    "start_redis",
    "start_s3",
]
