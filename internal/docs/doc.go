// Package docs tests the documentation: README.md and docs say what the code does, or a test here fails.
//
// A fenced block below a line of the form
//
//	<!-- from: path/to/file.go#name -->
//
// equals that region of the file. A region of a Go file lies between the comments "// region name" and "// endregion";
// several of one name are joined by an empty line. A name that begins with Example is the body of that function, without
// its output. In an SQL file the name is that of a table, and the region the statement that creates it. Without a name
// the region is the whole file.
//
// Other Go blocks parse. Links to files and headings lead somewhere. Test functions that a page names exist.
package docs
