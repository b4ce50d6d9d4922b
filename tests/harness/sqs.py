"""Values of SQS's shapes, and its clients."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import boto3
from botocore.config import Config
from hypothesis import strategies as st

from mq.sqs.shapes import Fields, Many, Named, Shape

TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=6
) | st.sampled_from(["\t", "a\r\nb", '<&"'])
NAMES = st.text("abcXYZ019_-", min_size=1, max_size=5)
VALUES = {
    "text": TEXTS,
    "whole": st.integers(-(10**6), 10**6),
    "flag": st.booleans(),
    "blob": st.binary(max_size=8),
}


def values(shape: Shape, least: int = 0) -> st.SearchStrategy[Any]:
    """Values of a shape; `least`: the number of items that its lists and maps have at least."""
    if isinstance(shape, Many):
        return st.lists(values(shape.of, least), min_size=least, max_size=3)
    if isinstance(shape, Named):
        return st.dictionaries(NAMES, values(shape.of, least), min_size=least, max_size=3)
    if isinstance(shape, Fields):
        each = {name: values(of, least) for name, of in shape.fields.items()}
        return st.fixed_dictionaries(
            {name: of for name, of in each.items() if name in shape.required},
            optional={name: of for name, of in each.items() if name not in shape.required},
        )
    return VALUES[shape]


@contextmanager
def sqs(url: str, secret: str = "secret") -> Iterator[Any]:
    """Amazon's client of an mq, which tries nothing again."""
    config = Config(retries={"total_max_attempts": 1})
    keys = {"aws_access_key_id": "jobs", "aws_secret_access_key": secret}
    made = boto3.client("sqs", endpoint_url=url, region_name="eu-west-1", config=config, **keys)
    with closing(made) as client:
        yield client
