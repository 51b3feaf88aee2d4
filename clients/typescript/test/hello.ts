/** Prints an answer and does not close its client. */
import { connect } from "../src/node.js";

const [address = ""] = process.argv.slice(2);
const client = connect(address.includes("://") ? { baseUrl: address } : { address });
console.log((await client.ask("Hello")).text);
