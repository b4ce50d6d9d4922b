"""The table of SQS's operations, held against botocore's model."""

import botocore.session
from botocore.model import ListShape, MapShape, StructureShape
from botocore.model import Shape as TheirShape

from mq.sqs.errors import COMMON_KINDS, QUERY_CODES, STATUSES
from mq.sqs.shapes import OPERATIONS, Fields, Many, Named, Shape

MODEL = botocore.session.get_session().get_service_model("sqs")
SCALARS = {"string": "text", "integer": "whole", "long": "whole", "boolean": "flag", "blob": "blob"}


def same(ours: Shape, theirs: TheirShape) -> bool:
    if isinstance(theirs, StructureShape):
        return (
            isinstance(ours, Fields)
            and ours.fields.keys() == theirs.members.keys()
            and ours.required == set(theirs.required_members)
            and all(same(each, theirs.members[name]) for name, each in ours.fields.items())
        )
    if isinstance(theirs, ListShape):
        return isinstance(ours, Many) and same(ours.of, theirs.member)
    if isinstance(theirs, MapShape):
        return isinstance(ours, Named) and same(ours.of, theirs.value)
    return ours == SCALARS[theirs.type_name]


def test_every_operation_is_as_amazon_declares_it():
    assert set(OPERATIONS) == set(MODEL.operation_names)
    for name, (taken, given) in OPERATIONS.items():
        operation = MODEL.operation_model(name)
        assert same(taken, operation.input_shape), name
        assert same(given, operation.output_shape) if operation.output_shape else not given.fields


def test_errors_of_the_model_are_amazons_and_others_are_common():
    theirs = {each.name for each in MODEL.error_shapes}
    assert not COMMON_KINDS & theirs
    assert {*QUERY_CODES, *STATUSES} <= theirs | COMMON_KINDS
