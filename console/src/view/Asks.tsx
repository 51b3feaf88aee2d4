// What waits for a person: permission for a call, and questions of tools.
import { useState } from "preact/hooks";

import { type PermissionRequest, type Question, QuestionAction, type ToolCallState } from "../contract.js";
import { answerPermission, answerQuestion } from "../state/actions.js";
import { visible } from "../state/arguments.js";
import { type Field, fieldsOf, filledIn } from "../state/forms.js";
import { notify } from "../state/app.js";

/** Asks whether a call may run. */
export function PermissionAsk({ request, call }: { request: PermissionRequest; call: ToolCallState }) {
  const [busy, setBusy] = useState(false);
  const [reason, setReason] = useState("");
  const answer = async (response: string): Promise<void> => {
    setBusy(true);
    await answerPermission(request.sessionId, request.id, response, response === "reject" ? reason : "");
    setBusy(false);
  };
  return (
    <section class="ask" role="group" aria-label="Permission" data-permission={request.id}>
      {/* A title that begins with the tool repeats the arguments, which the card above shows whole. */}
      <h3 dir="auto">{!request.title || request.title.startsWith(call.name) ? <>May <code dir="ltr">{visible(call.name)}</code> run?</> : request.title}</h3>
      <div class="row">
        <button type="button" class="strong" data-answer="once" title="Allow once (y)" disabled={busy} onClick={() => void answer("once")}>
          Allow once
        </button>
        <button type="button" class="plain" data-answer="always" title="Always in this session (A)" disabled={busy} onClick={() => void answer("always")} aria-describedby={`${request.id}-always`}>
          Always in this session
        </button>
        <button type="button" class="plain danger" data-answer="reject" title="Deny (n)" disabled={busy} onClick={() => void answer("reject")}>
          Deny
        </button>
        <input
          class="grow" placeholder="Why not (the model reads it)" aria-label="Reason, when you deny" maxLength={4096} value={reason}
          onInput={(event) => setReason(event.currentTarget.value)}
        />
      </div>
      {request.pattern.length > 0 && (
        <p class="small soft" id={`${request.id}-always`}>
          “Always” allows {request.pattern.map((pattern) => <code key={pattern}>{pattern}</code>)}
        </p>
      )}
    </section>
  );
}

/** Asks what a tool wants to know. */
export function QuestionAsk({ question }: { question: Question }) {
  return (
    <section class="ask" role="group" aria-label="Question" data-question={question.questionId}>
      <h3>
        <span dir="auto">{question.source}</span> asks
      </h3>
      <p dir="auto" style={{ whiteSpace: "pre-wrap" }}>{question.prompt}</p>
      {question.form.case === "schema" && <SchemaQuestion question={question} schema={question.form.value.schemaJson} />}
      {question.form.case === "link" && <LinkQuestion question={question} address={question.form.value.url} />}
      {question.form.case === undefined && <Refusals question={question} />}
    </section>
  );
}

function Refusals({ question }: { question: Question }) {
  const answer = (action: QuestionAction) => () => void answerQuestion(question.sessionId, question.questionId, action);
  return (
    <>
      <button type="button" class="plain danger" onClick={answer(QuestionAction.DECLINE)}>
        Decline
      </button>
      <button type="button" onClick={answer(QuestionAction.CANCEL)}>
        Put away
      </button>
    </>
  );
}

function SchemaQuestion({ question, schema }: { question: Question; schema: string }) {
  const [fields] = useState(() => fieldsOf(schema));
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    const content = filledIn(fields ?? [], new FormData(event.currentTarget as HTMLFormElement));
    void answerQuestion(question.sessionId, question.questionId, QuestionAction.ACCEPT, JSON.stringify(content));
  };
  if (!fields) return (
    <div class="row">
      <p class="small">This form is newer than this page.</p>
      <Refusals question={question} />
    </div>
  );
  return (
    <form class="fields" onSubmit={submit}>
      <fieldset>
        <legend class="unseen">Answer</legend>
        {fields.map((field) => <FieldInput key={field.name} field={field} />)}
        <div class="row">
          <button type="submit" class="strong">Answer</button>
          <Refusals question={question} />
        </div>
      </fieldset>
    </form>
  );
}

function FieldInput({ field }: { field: Field }) {
  const name = <span dir="auto">{field.title}{field.required ? "" : <span class="soft small"> (optional)</span>}</span>;
  const hint = field.description && <span class="small soft" dir="auto">{field.description}</span>;
  if (field.kind === "boolean") return (
    <label class="row">
      <input type="checkbox" name={field.name} defaultChecked={field.value === true} />
      {name} {hint}
    </label>
  );
  if (field.kind === "many") return (
    <fieldset>
      <legend>{name}</legend>
      {hint}
      {field.choices.map((choice) => (
        <label class="row" key={choice.value}>
          <input type="checkbox" name={field.name} value={choice.value} defaultChecked={Array.isArray(field.value) && field.value.includes(choice.value)} />
          <span dir="auto">{choice.title}</span>
        </label>
      ))}
    </fieldset>
  );
  const initial = field.value === undefined ? "" : String(field.value);
  return (
    <label class="field">
      {name}
      {hint}
      {field.kind === "one" ? (
        <select name={field.name} required={field.required} defaultValue={initial}>
          {!(field.required && initial) && <option value="" />}
          {field.choices.map((choice) => <option key={choice.value} value={choice.value} selected={choice.value === initial}>{choice.title}</option>)}
        </select>
      ) : (
        <input
          name={field.name} type={field.input as "text"} required={field.required} defaultValue={initial} dir="auto" autocomplete="off"
          {...(field.kind === "integer" ? { step: 1 } : field.kind === "number" ? { step: "any" } : {})}
          {...field.bounds}
        />
      )}
    </label>
  );
}

function LinkQuestion({ question, address }: { question: Question; address: string }) {
  let url: URL | null = null;
  try {
    url = new URL(address);
  } catch {
    // shown as text only
  }
  const local = url && ["localhost", "127.0.0.1", "[::1]"].includes(url.hostname);
  const safe = url && (url.protocol === "https:" || (url.protocol === "http:" && local));
  const open = (): void => {
    if (!url || !safe) return;
    window.open(url.href, "_blank", "noopener,noreferrer");
    void answerQuestion(question.sessionId, question.questionId, QuestionAction.ACCEPT).then((done) => done && notify("Opened in a new tab."));
  };
  return (
    <>
      <p class="small">It wants to open a page of <strong>{url?.host ?? "an unknown host"}</strong>. The whole address:</p>
      <pre class="text">{address}</pre>
      <div class="row">
        <button type="button" class="strong" disabled={!safe} onClick={open}>Open {url?.host ?? ""}</button>
        <Refusals question={question} />
      </div>
    </>
  );
}
