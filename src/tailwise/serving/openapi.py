"""What the server takes and answers, as OpenAPI describes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailwise.serving.batches_of_requests import COVERAGE, FIGURES, LEAST, MAX_LEVELS, MOST
from tailwise.serving.row_schema import RowSchema


def described(rows: RowSchema, targets: Sequence[str], max_rows: int) -> dict[str, Any]:
    """Return the schema of a request to /predict and of its answers."""
    number = {"type": ["number", "null"]}
    one: dict[str, Any] = {
        "type": "object",
        "properties": {
            **dict.fromkeys(FIGURES, number),
            "region": {"type": "string", "description": "How common such labels were in training."},
            "quantiles": {"type": "object", "additionalProperties": number},
        },
    }
    if len(targets) > 1:
        one = {"type": "object", "properties": dict.fromkeys(targets, one)}
    asked = {
        "type": "object",
        "required": ["rows"],
        "additionalProperties": False,
        "properties": {
            "rows": {
                "type": "array",
                "minItems": 1,
                "maxItems": max_rows,
                "items": rows.to_json(),
            },
            "coverage": {"type": "number", "minimum": LEAST, "maximum": MOST, "default": COVERAGE},
            "quantiles": {
                "type": "array",
                "maxItems": MAX_LEVELS,
                "items": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            },
            "emphasis": {
                "type": ["number", "null"],
                "minimum": 0,
                "maximum": 1,
                "description": "Attention to rare labels; null is the model's own.",
            },
        },
    }
    given = {
        "type": "object",
        "properties": {
            "predictions": {"type": "array", "items": one},
            "coverage": {"type": "number"},
            "emphasis": {"description": "A number, or a list of one for each target."},
            "notes": {"type": "array", "items": {"type": "string"}},
        },
    }
    problem = {
        "type": "object",
        "properties": {
            "error": {"type": "string"},
            "problems": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "row": {"type": ["integer", "null"], "description": "Counted from 0."},
                        "column": {"type": ["string", "null"]},
                        "problem": {"type": "string"},
                    },
                },
            },
        },
    }
    example = {"rows": [rows.example()], "coverage": COVERAGE, "quantiles": [0.5]}
    reasons = {
        "400": "The body is not JSON.",
        "408": "The body took too long.",
        "413": "Too many rows or bytes.",
        "415": "The body is not application/json.",
        "422": "Rows or options are wrong; problems names row and column.",
        "503": "Too many requests wait; Retry-After says when to try again.",
    }
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": asked, "example": example}},
        },
        "responses": {
            "200": {
                "description": "A prediction for each row.",
                "content": {"application/json": {"schema": given}},
            },
            **{
                status: {"description": about, "content": {"application/json": {"schema": problem}}}
                for status, about in reasons.items()
            },
        },
    }
