// Forms that tools ask to have filled in: JSON Schema of flat objects becomes fields, and fields become an object again.

/** One field of a form. */
export interface Field {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly required: boolean;
  readonly kind: "text" | "number" | "integer" | "boolean" | "one" | "many";
  /** The type of its input element. */
  readonly input: "text" | "number" | "email" | "url" | "date" | "datetime-local";
  readonly choices: readonly { readonly value: string; readonly title: string }[];
  readonly bounds: { readonly min?: number; readonly max?: number; readonly minLength?: number; readonly maxLength?: number };
  /** What it begins with. */
  readonly value: unknown;
}

type Json = Record<string, unknown>;
const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value);
const texts = (value: unknown): string[] => (Array.isArray(value) ? value.filter((one) => typeof one === "string") : []);
const INPUTS: Record<string, Field["input"]> = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

/** Reads the schema of a form. Answers null for one that is not understood. */
export function fieldsOf(schemaJson: string): Field[] | null {
  let schema: unknown;
  try {
    schema = JSON.parse(schemaJson);
  } catch {
    return null;
  }
  if (!isObject(schema) || !isObject(schema["properties"])) return null;
  const required = new Set(texts(schema["required"]));
  const fields: Field[] = [];
  for (const [name, property] of Object.entries(schema["properties"])) {
    const field = isObject(property) ? fieldOf(name, property, required.has(name)) : null;
    if (!field) return null;
    fields.push(field);
  }
  return fields;
}

function fieldOf(name: string, property: Json, required: boolean): Field | null {
  const choices = choicesOf(property);
  const items = isObject(property["items"]) ? choicesOf(property["items"]) : [];
  const kind =
    choices.length > 0 ? "one"
    : property["type"] === "array" && items.length > 0 ? "many"
    : property["type"] === "string" ? "text"
    : property["type"] === "number" || property["type"] === "integer" || property["type"] === "boolean" ? property["type"]
    : null;
  if (!kind) return null;
  const numeric = kind === "number" || kind === "integer";
  return {
    name,
    title: typeof property["title"] === "string" ? property["title"] : name,
    description: typeof property["description"] === "string" ? property["description"] : "",
    required,
    kind,
    input: numeric ? "number" : (INPUTS[String(property["format"])] ?? "text"),
    choices: kind === "many" ? items : choices,
    bounds: {
      ...bound(property, "minimum", "min"), ...bound(property, "maximum", "max"),
      ...bound(property, "minLength", "minLength"), ...bound(property, "maxLength", "maxLength"),
    },
    value: property["default"],
  };
}

function bound(property: Json, from: string, to: string): Record<string, number> {
  const value = property[from];
  return typeof value === "number" ? { [to]: value } : {};
}

function choicesOf(property: Json): { value: string; title: string }[] {
  const options = property["oneOf"] ?? property["anyOf"];
  if (Array.isArray(options)) {
    return options.flatMap((option) =>
      isObject(option) && typeof option["const"] === "string"
        ? [{ value: option["const"], title: typeof option["title"] === "string" ? option["title"] : option["const"] }]
        : [],
    );
  }
  const names = texts(property["enumNames"]);
  return texts(property["enum"]).map((value, index) => ({ value, title: names[index] ?? value }));
}

/** What was filled in, as the schema wants it. Fields that are empty and not required are left out. */
export function filledIn(fields: readonly Field[], form: FormData): Json {
  const content: Json = {};
  for (const field of fields) {
    const text = String(form.get(field.name) ?? "");
    if (field.kind === "boolean") content[field.name] = form.has(field.name);
    else if (field.kind === "many") content[field.name] = form.getAll(field.name).map(String);
    else if (text === "" && !field.required) continue;
    else if (field.kind === "number" || field.kind === "integer") content[field.name] = Number(text);
    else if (field.input === "datetime-local") content[field.name] = new Date(text).toISOString();
    else content[field.name] = text;
  }
  return content;
}
