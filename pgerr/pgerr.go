// Package pgerr is the one table of errors that clients see: SQLSTATE, severity, text and what becomes of the session.
package pgerr
