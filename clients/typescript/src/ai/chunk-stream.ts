import type { UIMessageChunk } from "ai";

/**
 * Returns what a generator gives as a stream, which asks for a chunk only when its reader does: so an error comes behind all
 * chunks before it.
 *
 * @param ended is called once, when the stream is over, whichever way.
 */
export function streamOf(chunks: AsyncGenerator<UIMessageChunk, void, undefined>, ended: () => void): ReadableStream<UIMessageChunk> {
  let isOver = false;
  const end = () => {
    if (isOver) return;
    isOver = true;
    ended();
  };
  return new ReadableStream<UIMessageChunk>(
    {
      async pull(controller) {
        try {
          const { done, value } = await chunks.next();
          if (isOver) return; // cancelled meanwhile
          if (!done) return controller.enqueue(value);
          end();
          controller.close();
        } catch (error) {
          end();
          controller.error(error);
        }
      },
      async cancel() {
        end();
        await chunks.return();
      },
    },
    { highWaterMark: 0 },
  );
}
