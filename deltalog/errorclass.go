package deltalog

import "fmt"

// sqlStates maps the error classes of Databricks and Spark that this project uses to their SQLSTATE.
var sqlStates = map[string]string{
	"DELTA_CANNOT_MODIFY_APPEND_ONLY":                        "42809",
	"DELTA_CDC_START_VERSION_AFTER_LATEST":                   "22003",
	"DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA":        "0AKDC",
	"DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE":      "0AKDC",
	"DELTA_CONCURRENT_APPEND":                                "2D521",
	"DELTA_CONCURRENT_DELETE_DELETE":                         "2D521",
	"DELTA_CONCURRENT_DELETE_READ":                           "2D521",
	"DELTA_CONCURRENT_TRANSACTION":                           "2D521",
	"DELTA_EXCEED_CHAR_VARCHAR_LIMIT":                        "22001",
	"DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT":               "0AKDE",
	"DELTA_UNSET_NON_EXISTENT_PROPERTY":                      "42616",
	"DELTA_INVALID_CDC_RANGE":                                "22003",
	"DELTA_INVALID_PROTOCOL_VERSION":                         "KD004",
	"DELTA_LOG_FILE_NOT_FOUND":                               "42K03",
	"DELTA_METADATA_CHANGED":                                 "2D521",
	"DELTA_MISSING_CHANGE_DATA":                              "KD002",
	"DELTA_MISSING_PART_FILES":                               "42KD6",
	"DELTA_MULTIPLE_CDC_BOUNDARY":                            "42614",
	"DELTA_NO_START_FOR_CDC_READ":                            "42601",
	"DELTA_NOT_NULL_CONSTRAINT_VIOLATED":                     "23502",
	"DELTA_PROTOCOL_CHANGED":                                 "2D521",
	"DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE": "21506",
	"DELTA_REPLACE_WHERE_MISMATCH":                           "44000",
	"DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA":        "XXKDS",
	"DELTA_STATE_RECOVER_ERROR":                              "XXKDS",
	"DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS":               "42711",
	"DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION":          "42816",
	"DELTA_TIMESTAMP_GREATER_THAN_COMMIT":                    "42816",
	"DELTA_TIMESTAMP_INVALID":                                "42816",
	"DELTA_UNSUPPORTED_FEATURES_FOR_READ":                    "56038",
	"DELTA_UNSUPPORTED_FEATURES_FOR_WRITE":                   "56038",
	"DELTA_VERSION_INVALID":                                  "42815",
	"DELTA_VERSION_NOT_FOUND":                                "22003",
	"DELTA_VERSIONS_NOT_CONTIGUOUS":                          "KD00C",
}

// ClassError is an error for which Databricks and Spark have a class; find it with errors.As. It prints as theirs do, "[CLASS] text SQLSTATE: state",
// and matches what it is about with errors.Is as if it were not there.
type ClassError struct {
	// Class is the name of the class, such as DELTA_VERSION_NOT_FOUND.
	Class string
	err   error
}

// NewClassError makes an error of a class about kind, a sentinel (nil: none), which the text goes on from. The text is formatted as by fmt.Errorf.
func NewClassError(class string, kind error, format string, args ...any) error {
	if kind == nil {
		return &ClassError{class, fmt.Errorf(format, args...)}
	}
	return &ClassError{class, fmt.Errorf("%w: "+format, append([]any{kind}, args...)...)}
}

// SQLState is the SQLSTATE of the class, "" if it is not known.
func (e *ClassError) SQLState() string { return sqlStates[e.Class] }

// Error implements error.
func (e *ClassError) Error() string {
	if state := e.SQLState(); state != "" {
		return fmt.Sprintf("[%s] %v SQLSTATE: %s", e.Class, e.err, state)
	}
	return fmt.Sprintf("[%s] %v", e.Class, e.err)
}

// Unwrap gives what the error is about.
func (e *ClassError) Unwrap() error { return e.err }
