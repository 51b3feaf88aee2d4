package turnwire

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// schema is a JSON Schema, as far as Go types have one.
type schema struct {
	Type        string             `json:"type,omitempty"`
	Format      string             `json:"format,omitempty"`
	Description string             `json:"description,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Additional  any                `json:"additionalProperties,omitempty"`
	Minimum     *int               `json:"minimum,omitempty"`
}

// schemaOf returns the schema of a struct as text; it panics when there is none.
func schemaOf[T any]() string {
	kind := reflect.TypeFor[T]()
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if kind.Kind() != reflect.Struct {
		panic(fmt.Sprintf("turnwire: a tool takes a struct, not %v", kind))
	}
	encoded, err := json.Marshal(describe(kind, nil))
	if err != nil {
		panic(err) // maps of strings and structs of them can be encoded
	}
	return string(encoded)
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
)

// describe returns the schema of a type. above are the structs that it is in: a schema here cannot refer to itself.
func describe(kind reflect.Type, above []reflect.Type) *schema {
	switch kind {
	case timeType:
		return &schema{Type: "string", Format: "date-time"}
	case rawType:
		return &schema{}
	}
	switch kind.Kind() {
	case reflect.Pointer:
		return describe(kind.Elem(), above)
	case reflect.String:
		return &schema{Type: "string"}
	case reflect.Bool:
		return &schema{Type: "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &schema{Type: "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &schema{Type: "integer", Minimum: new(int)}
	case reflect.Float32, reflect.Float64:
		return &schema{Type: "number"}
	case reflect.Interface:
		return &schema{}
	case reflect.Slice, reflect.Array:
		if kind.Elem().Kind() == reflect.Uint8 { // as encoding/json has it
			return &schema{Type: "string"}
		}
		return &schema{Type: "array", Items: describe(kind.Elem(), above)}
	case reflect.Map:
		if kind.Key().Kind() == reflect.String {
			return &schema{Type: "object", Additional: describe(kind.Elem(), above)}
		}
	case reflect.Struct:
		return describeStruct(kind, above)
	}
	panic(fmt.Sprintf("turnwire: %v has no JSON Schema", kind))
}

func describeStruct(kind reflect.Type, above []reflect.Type) *schema {
	for _, outer := range above {
		if outer == kind {
			panic(fmt.Sprintf("turnwire: %v contains itself; use NewRawTool with a schema of its own", kind))
		}
	}
	found := &schema{Type: "object", Properties: map[string]*schema{}, Additional: false}
	for _, field := range reflect.VisibleFields(kind) {
		tag := field.Tag.Get("json")
		name, flags, _ := strings.Cut(tag, ",")
		if !field.IsExported() || tag == "-" || field.Anonymous && name == "" || within(kind, field) {
			continue
		}
		if name == "" {
			name = field.Name
		}
		property := describe(field.Type, append(above, kind))
		property.Description = field.Tag.Get("description")
		if values := field.Tag.Get("enum"); values != "" {
			property.Enum = strings.Split(values, ",")
		}
		found.Properties[name] = property
		optional := strings.Contains(flags, "omitempty") || strings.Contains(flags, "omitzero")
		if field.Type.Kind() != reflect.Pointer && !optional {
			found.Required = append(found.Required, name)
		}
	}
	return found
}

// within reports whether a field belongs to an embedded struct that is a property of its own.
func within(kind reflect.Type, field reflect.StructField) bool {
	for i := 1; i < len(field.Index); i++ {
		name, _, _ := strings.Cut(kind.FieldByIndex(field.Index[:i]).Tag.Get("json"), ",")
		if name != "" {
			return true
		}
	}
	return false
}
