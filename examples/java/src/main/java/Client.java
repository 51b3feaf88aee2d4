import io.github.turnwire.opencode.message.MessagePart;
import io.github.turnwire.opencode.message.MessageServiceGrpc;
import io.github.turnwire.opencode.message.SendMessageRequest;
import io.github.turnwire.opencode.message.StreamMessageRequest;
import io.github.turnwire.opencode.message.TextPart;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.StatusRuntimeException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** Sends a message and prints the answer while it comes: Client [TEXT [HOST:PORT]]. */
public final class Client {
  /** Counts the bytes of each part that are on the screen. */
  private static final Map<String, Long> held = new HashMap<>();

  /** Prints what is new of a piece of a part that begins at offset. */
  private static void show(String messageId, int index, long offset, String piece) {
    var part = messageId + " " + index;
    var bytes = piece.getBytes(StandardCharsets.UTF_8);
    long have = held.getOrDefault(part, 0L);
    if (offset <= have && have < offset + bytes.length) {
      int known = (int) (have - offset);
      System.out.write(bytes, known, bytes.length - known);
      System.out.flush();
      held.put(part, offset + bytes.length);
    }
  }

  private static void run(String text, String target) {
    var channel = Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).build();
    var part = MessagePart.newBuilder().setText(TextPart.newBuilder().setText(text));
    var message = SendMessageRequest.newBuilder().addParts(part);
    var request = StreamMessageRequest.newBuilder().setMessage(message).build();
    var answers = MessageServiceGrpc.newBlockingStub(channel).streamMessage(request);
    while (answers.hasNext()) {
      for (var event : answers.next().getEventsList()) {
        var delta = event.getPartDelta();
        var snapshot = event.getMessageSnapshot().getMessage();
        var end = event.getPartFinished();
        show(delta.getMessageId(), delta.getPartIndex(), delta.getOffset(), delta.getText());
        for (var known : snapshot.getPartsList()) {
          show(snapshot.getMessageId(), known.getIndex(), 0, known.getText().getText());
        }
        show(end.getMessageId(), end.getPart().getIndex(), 0, end.getPart().getText().getText());
        if (event.getTurnEnded().getTurn().hasFailure()) {
          var failure = event.getTurnEnded().getTurn().getFailure();
          throw new IllegalStateException(failure.getReason() + ": " + failure.getMessage());
        }
      }
    }
    System.out.println();
    channel.shutdown();
  }

  public static void main(String[] arguments) {
    try {
      run(
          arguments.length > 0 ? arguments[0] : "Hello from Java",
          arguments.length > 1 ? arguments[1] : "127.0.0.1:50051");
    } catch (StatusRuntimeException | IllegalStateException error) {
      System.err.println(error.getMessage());
      System.exit(1);
    }
  }
}
