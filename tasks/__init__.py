"""What mneme does: the job, ``L2Runner``, the prompt and the model, enqueueing, the sweep."""

from tasks.enqueueing import enqueue_job, enqueue_on_commit
from tasks.model import ChatClient, ModelAnswer, ToolCall
from tasks.report import Report
from tasks.runner import L2Runner

__all__ = ["ChatClient", "L2Runner", "ModelAnswer", "Report", "ToolCall", "enqueue_job", "enqueue_on_commit"]
