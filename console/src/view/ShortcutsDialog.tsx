// The list of keys.
import { KEYS } from "../keys.js";
import { Dialog } from "./Dialog.js";

export function ShortcutsDialog() {
  return (
    <Dialog title="Keys" narrow>
      <div class="body" data-first tabIndex={0} role="group" aria-label="Keys">
        <table>
          <tbody>
            {KEYS.map(([keys, does]) => (
              <tr key={keys}>
                <th scope="row">{keys.split(", ").map((key, index) => <>{index > 0 && " "}<kbd key={key}>{key}</kbd></>)}</th>
                <td>{does}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Dialog>
  );
}
