"""Lets the model ask you a question: client_tool.py [TEXT [HOST:PORT]]. The tool ask_user runs here, in the client."""

import json
import sys

import grpc

from opencode.message.message_pb2 import MessagePart, SendMessageRequest, StreamMessageRequest, TextPart
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.tool.tool_pb2 import SubmitToolResultRequest, ToolCallState, ToolDefinition
from opencode.tool.tool_pb2_grpc import ToolServiceStub

# the second line makes the offline model call the tool
TEXT = 'Ask me for my name with ask_user, then greet me.\n/tool ask_user {"question": "What is your name?"}'
SCHEMA = {"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]}

text, target = (*sys.argv[1:], *(TEXT, "127.0.0.1:50051")[len(sys.argv) - 1 :])
ask_user = ToolDefinition(
    name="ask_user", description="Asks the user a question.", input_schema_json=json.dumps(SCHEMA)
)
typed: dict[str, str] = {}


def answer(call: ToolCallState) -> str:
    """Asks the question of a call, once: if the call is seen again, it gets the same answer again."""
    if call.id not in typed:
        typed[call.id] = input(json.loads(call.input_json)["question"] + " ")
    return typed[call.id]


try:
    with grpc.insecure_channel(target) as channel:
        request = SendMessageRequest(parts=[MessagePart(text=TextPart(text=text))], tools=[ask_user])
        for batch in MessageServiceStub(channel).StreamMessage(StreamMessageRequest(message=request)):
            for event in batch.events:
                call = event.tool_call_updated.state
                waits = call.status == "pending" and not call.permission_id and not call.HasField("lease")
                if call.name == "ask_user" and waits:
                    output = answer(call)
                    result = SubmitToolResultRequest(session_id=event.session_id, tool_call_id=call.id, output=output)
                    ToolServiceStub(channel).SubmitToolResult(result)
                if event.part_finished.part.text.text:
                    print(event.part_finished.part.text.text)
                if event.turn_ended.turn.HasField("failure"):
                    failure = event.turn_ended.turn.failure
                    sys.exit(f"{failure.reason}: {failure.message}")
except grpc.RpcError as error:
    sys.exit(f"{target}: {error.code().name}: {error.details()}")
