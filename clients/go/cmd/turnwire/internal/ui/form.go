package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/turnwire/turnwire/clients/go/cmd/turnwire/internal/text"
)

// field is one property of a form.
type field struct {
	name     string
	required bool
	kind     string // "string", "number", "integer", "boolean" or "array"
	title    string
	about    string
	hint     string   // bounds and format
	choices  []string // of which one is chosen, or several of an array; empty for free text
	labels   []string // what people see of the choices
	fallback any      // the default; nil for none
}

// form is a question that is filled in field by field.
type form struct {
	fields  []field
	at      int // the field that is asked; len(fields) when all were
	line    lineInput
	values  map[string]any
	problem string
}

// newForm reads the schema of a form. A form that cannot be read has no fields.
func newForm(schema string) *form {
	f := &form{fields: fieldsOf(schema), values: map[string]any{}}
	f.ask()
	return f
}

// writing says whether a field is being filled in.
func (f *form) writing() bool { return f.at < len(f.fields) }

// restart asks the first field again; the values stay as defaults.
func (f *form) restart() {
	f.at, f.problem = 0, ""
	f.ask()
}

// refused tells why the server did not take the form. It can be changed and sent again.
func (f *form) refused(problem string) { f.problem = text.Line(problem) }

// ask prepares the line for the field.
func (f *form) ask() {
	value := ""
	if f.writing() {
		given, ok := f.values[f.fields[f.at].name]
		if !ok {
			given = f.fields[f.at].fallback
		}
		value = f.fields[f.at].written(given)
	}
	f.line = newLineInput("> ", value)
}

// key takes a key for the field.
func (f *form) key(key tea.KeyPressMsg) {
	if key.String() != "enter" {
		f.line.key(key)
		return
	}
	asked := f.fields[f.at]
	value, err := asked.parse(f.line.value())
	if err != nil {
		f.problem = err.Error()
		return
	}
	if f.problem = ""; value == nil {
		delete(f.values, asked.name)
	} else {
		f.values[asked.name] = value
	}
	f.at++
	f.ask()
}

// content returns what was filled in, as JSON.
func (f *form) content() string {
	encoded, err := json.Marshal(f.values)
	if err != nil {
		return "{}"
	}
	return string(encoded)
}

// view returns the lines of the form: the field that is asked, or all that was filled in.
func (f *form) view(width int) []string {
	var lines []string
	if f.problem != "" {
		lines = append(lines, text.Wrap("✗ "+f.problem, width, text.Red)...)
	}
	if !f.writing() {
		for _, field := range f.fields {
			value, ok := f.values[field.name]
			shown := "(left out)"
			if ok {
				shown = field.written(value)
			}
			lines = append(lines, text.Cut("  "+text.Bold.On(text.Line(field.label()))+": "+text.Line(shown), width))
		}
		return lines
	}
	asked := f.fields[f.at]
	head := fmt.Sprintf("%d/%d %s", f.at+1, len(f.fields), text.Line(asked.label()))
	if !asked.required {
		head += " (may be left empty)"
	}
	lines = append(lines, text.Cut(text.Bold.On(head), width))
	for _, more := range []string{asked.about, asked.hint} {
		if more != "" {
			lines = append(lines, text.Wrap(text.Line(more), width, text.Faint)...)
		}
	}
	for i, label := range asked.labels {
		lines = append(lines, text.Cut(fmt.Sprintf("  %d %s", i+1, text.Line(label)), width))
	}
	return append(lines, f.line.view(width), text.Cut(text.Faint.On("enter goes on · esc later"), width))
}

func (f field) label() string {
	if f.title != "" {
		return f.title
	}
	return f.name
}

// written returns a value as a person would type it.
func (f field) written(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	case bool:
		if value {
			return "yes"
		}
		return "no"
	case []string:
		return strings.Join(value, ", ")
	case []any:
		var words []string
		for _, one := range value {
			words = append(words, fmt.Sprint(one))
		}
		return strings.Join(words, ", ")
	default:
		return fmt.Sprint(value)
	}
}

// parse reads what was typed; nil when the field is left out.
func (f field) parse(typed string) (any, error) {
	trimmed := strings.TrimSpace(typed)
	if trimmed == "" {
		if f.required && f.kind != "string" || f.required && len(f.choices) > 0 {
			return nil, fmt.Errorf("%s is needed", text.Line(f.label()))
		}
		if f.required {
			return "", nil
		}
		return nil, nil
	}
	switch f.kind {
	case "boolean":
		switch strings.ToLower(trimmed) {
		case "y", "yes", "true", "1":
			return true, nil
		case "n", "no", "false", "0":
			return false, nil
		}
		return nil, fmt.Errorf("write yes or no")
	case "integer", "number":
		number := json.Number(trimmed)
		if _, err := number.Float64(); err != nil || !json.Valid([]byte(trimmed)) {
			return nil, fmt.Errorf("write a number")
		}
		if _, err := number.Int64(); err != nil && f.kind == "integer" {
			return nil, fmt.Errorf("write a whole number")
		}
		return number, nil
	case "array":
		var chosen []string
		for word := range strings.SplitSeq(trimmed, ",") {
			choice, err := f.choice(strings.TrimSpace(word))
			if err != nil {
				return nil, err
			}
			if !slices.Contains(chosen, choice) {
				chosen = append(chosen, choice)
			}
		}
		return chosen, nil
	default:
		if len(f.choices) > 0 {
			return f.choice(trimmed)
		}
		return typed, nil
	}
}

// choice finds a choice by its word or its number.
func (f field) choice(word string) (string, error) {
	for i, choice := range f.choices {
		if word == choice || word == f.labels[i] {
			return choice, nil
		}
	}
	if number, err := strconv.Atoi(word); err == nil && number >= 1 && number <= len(f.choices) {
		return f.choices[number-1], nil
	}
	return "", fmt.Errorf("choose by number or word, from 1 to %d", len(f.choices))
}

// property is what is read of a property of a schema.
type property struct {
	Type        string   `json:"type"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Format      string   `json:"format"`
	Enum        []string `json:"enum"`
	EnumNames   []string `json:"enumNames"`
	OneOf       []option `json:"oneOf"`
	Default     any      `json:"default"`
	Items       *struct {
		Enum  []string `json:"enum"`
		AnyOf []option `json:"anyOf"`
		OneOf []option `json:"oneOf"`
	} `json:"items"`
	Minimum   *json.Number `json:"minimum"`
	Maximum   *json.Number `json:"maximum"`
	MinLength *int         `json:"minLength"`
	MaxLength *int         `json:"maxLength"`
}

type option struct {
	Const string `json:"const"`
	Title string `json:"title"`
}

// fieldsOf reads the properties of a schema in their order.
func fieldsOf(schema string) []field {
	var read struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	if json.Unmarshal([]byte(schema), &read) != nil || len(read.Properties) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(read.Properties))
	if _, err := decoder.Token(); err != nil {
		return nil
	}
	var fields []field
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return fields
		}
		var declared property
		if decoder.Decode(&declared) != nil {
			return fields
		}
		fields = append(fields, declared.field(fmt.Sprint(name), slices.Contains(read.Required, fmt.Sprint(name))))
	}
	return fields
}

func (p property) field(name string, required bool) field {
	f := field{
		name: name, required: required, kind: p.Type, title: p.Title, about: p.Description, fallback: p.Default,
		choices: p.Enum, labels: p.Enum,
	}
	if len(p.EnumNames) == len(p.Enum) && len(p.Enum) > 0 {
		f.labels = p.EnumNames
	}
	options := p.OneOf
	if p.Items != nil {
		f.choices, f.labels = p.Items.Enum, p.Items.Enum
		options = append(p.Items.AnyOf, p.Items.OneOf...)
	}
	for _, option := range options {
		label := option.Title
		if label == "" {
			label = option.Const
		}
		f.choices, f.labels = append(f.choices, option.Const), append(f.labels, label)
	}
	f.hint = p.hint()
	return f
}

// hint tells bounds and format.
func (p property) hint() string {
	var told []string
	switch p.Type {
	case "boolean":
		told = append(told, "yes or no")
	case "integer":
		told = append(told, "a whole number")
	case "number":
		told = append(told, "a number")
	case "array":
		told = append(told, "several, with commas between them")
	default:
	}
	if p.Format != "" {
		told = append(told, p.Format)
	}
	if p.Minimum != nil {
		told = append(told, "at least "+p.Minimum.String())
	}
	if p.Maximum != nil {
		told = append(told, "at most "+p.Maximum.String())
	}
	if p.MinLength != nil {
		told = append(told, fmt.Sprintf("at least %d characters", *p.MinLength))
	}
	if p.MaxLength != nil {
		told = append(told, fmt.Sprintf("at most %d characters", *p.MaxLength))
	}
	return strings.Join(told, ", ")
}
